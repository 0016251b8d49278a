// Package ssd is the door to files, and the way features and adjacency come from disk.
//
//   - FS and File are system calls behind a small interface; all file work of core goes through them, so that faultfs
//     can fail any call.
//   - Writer writes a file once from beginning to end at the disk's sequential rate. The conversion uses it.
//   - Engine reads many ranges of a file with the device's queue kept full: by io_uring, by threads in pread, or
//     through the page cache.
//   - Temp is a file without a name, written at any place and read through an Engine. Package scratch keeps rows and
//     sampled batches in one.
//   - Calibrate measures what the disk can do as an Engine drives it; plans of transfers are chosen by the Device that
//     it returns, and by what Learned finds while they are executed.
//   - Merger turns row numbers into ranges: sorted, each page once, small holes read along.
//
// Files are never mapped into memory: one that is cut short, or a disk that fails, is a *PathError with file and
// offset. Transient faults (EINTR, EAGAIN, short transfers) are repeated a bounded number of times. Whatever can wait
// ends when its context or its engine does.
//
// A request costs about 5 us of processor time by io_uring and four times that by pread; a Read costs a wake-up of the
// engine besides, so that lists of hundreds of ranges are better than single ones.
package ssd
