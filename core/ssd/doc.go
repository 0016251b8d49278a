// Package ssd performs all file operations, and reads features and adjacency from disk.
//
//   - FS and File are system calls behind a small interface; all file work of core goes through them, so that faultfs
//     can make any call fail.
//   - Writer writes a file once from beginning to end at the disk's sequential rate, for conversions.
//   - Engine reads many ranges of a file with the device's queue kept full: by io_uring, by threads in pread, or
//     through the page cache.
//   - Temp is a file without a name, written at any position and read through an Engine. Package scratch keeps rows and
//     sampled batches in one.
//   - Calibrate measures the rates of the disk as an Engine drives it. Plans choose transfers by the resulting Device,
//     as corrected by Learned while they run.
//   - Merger turns row numbers into ranges: sorted, each page once, with small holes read along.
//
// Files are never mapped into memory: a truncated file or a failing disk is a *PathError with file and offset.
// Transient faults (EINTR, EAGAIN, short transfers) are retried a bounded number of times. Every wait ends when its
// context or its engine does.
//
// A request costs about 5 us of processor time by io_uring and four times that by pread. Each Read also wakes the
// engine, so lists of hundreds of ranges are better than single ones.
package ssd
