//go:build liburing

#define _GNU_SOURCE
#include "rival.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct loop {
	struct io_uring ring;
	char *memory;
	int64_t *slot_offset;
	const int64_t *offsets;
	int64_t n, submitted;
	int fd, block, registered;
};

static void submit(struct loop *l, int slot)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
	int64_t offset = l->offsets[l->submitted++];
	char *to = l->memory + (int64_t)slot * l->block;

	l->slot_offset[slot] = offset;
	if (l->registered) {
		io_uring_prep_read_fixed(sqe, 0, to, l->block, offset, 0);
		sqe->flags |= IOSQE_FIXED_FILE;
	} else {
		io_uring_prep_read(sqe, l->fd, to, l->block, offset);
	}
	io_uring_sqe_set_data64(sqe, slot);
}

static int serve(struct loop *l, int depth)
{
	for (int slot = 0; slot < depth && l->submitted < l->n; slot++)
		submit(l, slot);
	for (int64_t done = 0; done < l->n;) {
		struct io_uring_cqe *cqe;
		unsigned head, seen = 0;
		int rc = io_uring_submit_and_wait(&l->ring, 1);

		if (rc < 0 && rc != -EINTR)
			return rc;
		io_uring_for_each_cqe(&l->ring, head, cqe) {
			int slot = (int)io_uring_cqe_get_data64(cqe);
			uint64_t page;

			if (cqe->res != l->block)
				return cqe->res < 0 ? cqe->res : -EIO;
			memcpy(&page, l->memory + (int64_t)slot * l->block, sizeof page);
			if (page != (uint64_t)l->slot_offset[slot] / 4096)
				return -EBADMSG;
			seen++;
			if (l->submitted < l->n)
				submit(l, slot);
		}
		io_uring_cq_advance(&l->ring, seen);
		done += seen;
	}
	return 0;
}

int rival_read(const char *path, const int64_t *offsets, int64_t n, int block, int depth, int registered)
{
	struct loop l = {.offsets = offsets, .n = n, .block = block, .registered = registered};
	int rc = io_uring_queue_init(depth, &l.ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);

	if (rc < 0)
		return rc;
	l.fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	rc = l.fd < 0 ? -errno : 0;
	l.slot_offset = calloc(depth, sizeof *l.slot_offset);
	if (!rc && (!l.slot_offset || posix_memalign((void **)&l.memory, 4096, (size_t)block * depth)))
		rc = -ENOMEM;
	if (!rc && registered) {
		struct iovec all = {l.memory, (size_t)block * depth};

		rc = io_uring_register_buffers(&l.ring, &all, 1);
		if (!rc)
			rc = io_uring_register_files(&l.ring, &l.fd, 1);
	}
	if (!rc)
		rc = serve(&l, depth);
	io_uring_queue_exit(&l.ring);
	free(l.memory);
	free(l.slot_offset);
	if (l.fd >= 0)
		close(l.fd);
	return rc;
}
