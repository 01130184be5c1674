/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.c - measures a disk: threads that read, and a search for how they do it best.
 *
 * The product of all sizes, depths and rings would take minutes.  Sizes and depths are
 * tried together, since they make up for each other, then rings for the best of these.  Rates
 * wander by some per cent, so the best few of all run again, in turns, and the
 * highest rate of each counts: what disturbs a run only makes it slower.
 */
#include "sys/disk_file.h"
#include "sys/small.h"

#include <k3/buf.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

enum {
	MAX_DEPTH = 8,
	FIRST_RING = 8 << 20,
	MAX_RING = 64 << 20,
	PIECE = 17547264,	/* an expert of the released model */
};

static const uint64_t requests[] = { 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20 };
static const uint32_t depths[] = { 1, 2, 4, MAX_DEPTH };
static const uint64_t rings[] = { 4 << 20, FIRST_RING, 16 << 20, 32 << 20, MAX_RING };

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct disk {
	struct k3_disk_file file;
	struct k3_disk_report *report;
	char *ring;
	uint64_t cursor;	/* where sequential reading goes on, from the start of the part */
	uint64_t seed;		/* of random places */
	double unit;		/* seconds of a short measurement */
	double deadline;	/* after which nothing more is begun */
};

static double now(void)
{
	return (double)k3_nanoseconds() * 1e-9;
}

/* ---- one measurement ---- */

/* Counting begins when every thread is at work, and ends before the first one stops. */
struct run {
	struct disk *disk;
	const struct k3_disk_row *row;
	double seconds;
	bool look;		/* at every byte that has come */
	pthread_mutex_t lock;	/* of all below */
	uint64_t tickets;	/* requests begun */
	uint64_t done, bytes;	/* requests and bytes that have come */
	uint64_t sum;		/* of what was looked at */
	double begin, end;
	uint64_t begin_bytes, end_bytes;
	bool stop;
	int rc;
	struct k3_err err;
};

static uint64_t mix(uint64_t z)
{
	z *= 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Where in the file the request of a ticket begins, and how long it is. */
static uint64_t place(const struct run *r, uint64_t ticket, uint64_t *n)
{
	const struct disk *d = r->disk;
	uint64_t request = r->row->request, each, piece, first, last, at;

	*n = request;
	if (r->row->pattern == K3_DISK_SEQUENTIAL) {
		each = d->file.size / request;
		return d->file.start + (d->cursor / request + ticket) % each * request;
	}
	/* pieces begin anywhere; what is read begins and ends where direct reads may */
	each = (PIECE + 2 * K3_DIRECT + request - 1) / request;
	piece = mix(d->seed + ticket / each) % (d->file.size - PIECE - 2 * K3_DIRECT);
	first = k3_direct_down(d->file.start + piece);
	last = k3_direct_up(d->file.start + piece + PIECE);
	at = first + ticket % each * request;
	*n = at >= last ? 0 : last - at < request ? last - at : request;
	return at;
}

/* Takes note of a request that has come; true if this was enough. */
static bool account(struct run *r, uint64_t n, uint64_t sum, int rc, const struct k3_err *err)
{
	double t = now();
	bool stop;

	pthread_mutex_lock(&r->lock);
	r->bytes += n;
	r->sum += sum;
	if (++r->done == r->row->depth) {
		r->begin = t;
		r->begin_bytes = r->bytes;
	}
	if (rc && !r->rc) {
		r->rc = rc;
		r->err = *err;
		r->stop = true;
	}
	if (!r->stop && r->done > r->row->depth && t >= r->begin + r->seconds) {
		r->end = t;
		r->end_bytes = r->bytes;
		r->stop = true;
	}
	stop = r->stop;
	pthread_mutex_unlock(&r->lock);
	return stop;
}

static void *reader(void *arg)
{
	struct run *r = arg;
	struct disk *d = r->disk;
	uint64_t ticket, offset, n, sum = 0;
	struct k3_err err;
	char *to;
	int rc;

	do {
		do {
			pthread_mutex_lock(&r->lock);
			ticket = r->tickets++;
			pthread_mutex_unlock(&r->lock);
			offset = place(r, ticket, &n);
		} while (!n);
		/* two may get the same slot if one is very late: nobody asks what the bytes are */
		to = d->ring + ticket % (r->row->ring / r->row->request) * r->row->request;
		rc = k3_direct_read(&d->file.file, to, n, offset, n, &err);
		if (!rc && r->look) {
			sum = XXH3_64bits(to, n);
			k3_direct_used(to, n);
		}
	} while (!account(r, n, sum, rc, &err));
	return NULL;
}

/* Measures one way of asking; sets row->rate.  Who looks at bytes does not read meanwhile, so there is one more. */
static int measure(struct disk *d, struct k3_disk_row *row, double seconds, bool look,
		   struct k3_err *err)
{
	struct run r = { .disk = d, .row = row, .seconds = seconds, .look = look };
	pthread_t thread[MAX_DEPTH + 1];
	uint32_t n = 0, threads = row->depth + look;

	if (d->file.file.buffered)
		(void)posix_fadvise(d->file.file.fd, 0, 0, POSIX_FADV_DONTNEED);
	pthread_mutex_init(&r.lock, NULL);
	while (n < threads && !pthread_create(&thread[n], NULL, reader, &r))
		n++;
	if (n < threads) {
		pthread_mutex_lock(&r.lock);
		r.stop = true;
		r.rc = k3_fail(&r.err, K3_EIO, "no more threads can be had");
		pthread_mutex_unlock(&r.lock);
	}
	while (n)
		pthread_join(thread[--n], NULL);
	pthread_mutex_destroy(&r.lock);
	if (r.rc)
		return k3_fail(err, r.rc, "%s", r.err.text);
	row->rate = (double)(r.end_bytes - r.begin_bytes) / (r.end - r.begin);
	/* later runs read something else, lest it be in a cache of the device */
	d->cursor = (d->cursor + r.bytes) % d->file.size;
	d->seed += r.tickets;
	return 0;
}

/* ---- the search ---- */

static bool same_way(const struct k3_disk_row *a, const struct k3_disk_row *b)
{
	return a->pattern == b->pattern && a->request == b->request && a->depth == b->depth &&
	       a->ring == b->ring;
}

/* Measures and keeps the best rate of each way; nothing once time is up, but for the first. */
static int try(struct disk *d, struct k3_disk_row row, double units, struct k3_err *err)
{
	struct k3_disk_report *p = d->report;
	struct k3_disk_row *list;
	size_t i;
	int rc;

	for (i = 0; i < p->rows && !same_way(&p->row[i], &row); i++)
		;
	if (p->rows && now() > d->deadline && row.pattern == K3_DISK_SEQUENTIAL)
		return 0;
	rc = measure(d, &row, units * d->unit, false, err);
	if (rc)
		return rc;
	if (i < p->rows) {
		if (row.rate > p->row[i].rate)
			p->row[i].rate = row.rate;
		return 0;
	}
	list = k3_reallocarray(p->row, p->rows + 1, sizeof *list);
	if (!list)
		return k3_fail_nomem(err);
	p->row = list;
	p->row[p->rows++] = row;
	return 0;
}

static int by_rate(const void *a, const void *b)
{
	const struct k3_disk_row *x = a, *y = b;

	return x->rate > y->rate ? -1 : x->rate < y->rate;
}

/* Copies the best rows so far, at most max; returns how many. */
static size_t best_rows(const struct k3_disk_report *p, struct k3_disk_row *out, size_t max)
{
	size_t n = p->rows < max ? p->rows : max;

	/* all of these are sequential */
	qsort(p->row, p->rows, sizeof *p->row, by_rate);
	memcpy(out, p->row, n * sizeof *out);
	return n;
}

/* Twice for half the time: what disturbs one ought to be over before the other. */
static int try_requests_and_depths(struct disk *d, struct k3_err *err)
{
	enum { ROUNDS = 2 };
	size_t n = COUNT(requests) * COUNT(depths);
	int rc = 0;

	for (size_t i = 0; !rc && i < n * ROUNDS; i++) {
		struct k3_disk_row row = { .request = requests[i % n / COUNT(depths)],
					   .depth = depths[i % COUNT(depths)] };

		row.ring = row.request * row.depth > FIRST_RING ? row.request * row.depth : FIRST_RING;
		rc = try(d, row, 0.5, err);
	}
	return rc;
}

static int try_rings(struct disk *d, struct k3_err *err)
{
	enum { BEST = 3 };
	struct k3_disk_row best[BEST];
	size_t n = best_rows(d->report, best, BEST);
	int rc = 0;

	for (size_t i = 0; !rc && i < n * COUNT(rings); i++) {
		struct k3_disk_row row = best[i / COUNT(rings)];
		uint64_t ring = rings[i % COUNT(rings)];

		if (ring < row.request * row.depth || ring == row.ring)
			continue;
		row.ring = ring;
		rc = try(d, row, 1, err);
	}
	return rc;
}

/* Whether a wants less than b. */
static bool smaller(const struct k3_disk_row *a, const struct k3_disk_row *b)
{
	if (a->ring != b->ring)
		return a->ring < b->ring;
	return a->depth != b->depth ? a->depth < b->depth : a->request < b->request;
}

static void choose(struct k3_disk_report *p, size_t n)
{
	p->best = p->row[0];
	for (size_t i = 1; i < n; i++)
		if (p->row[i].rate >= 0.99 * p->row[0].rate && smaller(&p->row[i], &p->best))
			p->best = p->row[i];
}

static int try_best_again(struct disk *d, struct k3_err *err)
{
	enum { BEST = 6, ROUNDS = 3 };
	struct k3_disk_row best[BEST];
	size_t n = best_rows(d->report, best, BEST);
	int rc = 0;

	for (size_t i = 0; !rc && i < n * ROUNDS; i++)
		rc = try(d, best[i % n], 1.5, err);
	if (rc)
		return rc;
	qsort(d->report->row, d->report->rows, sizeof *best, by_rate);
	choose(d->report, n);
	return 0;
}

/* Pieces in the best way, and in some others for comparison. */
static int try_random(struct disk *d, struct k3_err *err)
{
	enum { BEST = 3, ROUNDS = 2 };
	struct k3_disk_report *p = d->report;
	struct k3_disk_row row[1 + BEST] = { p->best };
	size_t n = 1 + best_rows(p, row + 1, BEST);
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		row[i].pattern = K3_DISK_RANDOM;
	for (size_t i = 0; !rc && i < n * ROUNDS; i++)
		rc = try(d, row[i % n], 1.5, err);
	for (size_t i = 0; !rc && i < p->rows; i++)
		if (same_way(&p->row[i], &row[0]))
			p->random = p->row[i];
	return rc;
}

/* For longer than the others, as it is a mean and not a best. */
static int try_used(struct disk *d, struct k3_err *err)
{
	struct k3_disk_row row = d->report->best;
	int rc = measure(d, &row, 12 * d->unit, true, err);

	d->report->used_rate = row.rate;
	return rc;
}

static int search(struct disk *d, struct k3_err *err)
{
	int rc = try_requests_and_depths(d, err);

	if (!rc)
		rc = try_rings(d, err);
	if (!rc)
		rc = try_best_again(d, err);
	if (!rc)
		rc = try_random(d, err);
	if (!rc)
		rc = try_used(d, err);
	d->report->direct = !d->file.file.buffered;
	if (!rc && !d->report->direct)
		rc = k3_disk_warn(d->report, err, "direct reads are refused here: the rates are of reads "
				  "through the page cache, which are slower");
	return rc;
}

int k3_disk_measure(const char *path, double seconds, struct k3_disk_report *out,
		    struct k3_err *err)
{
	/* the search takes about 80 short measurements; on a slow device each takes longer */
	struct disk d = { .report = out, .unit = seconds / 84, .deadline = now() + 2 * seconds };
	struct timespec t;
	int rc;

	*out = (struct k3_disk_report){ 0 };
	rc = k3_disk_file_open(path, out, &d.file, err);
	if (rc)
		return rc;
	clock_gettime(CLOCK_REALTIME, &t);
	d.seed = mix((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec);
	d.cursor = d.seed % d.file.size;
	d.ring = k3_huge_new(MAX_RING);
	if (d.ring) {
		/* it is resident before it is measured with */
		memset(d.ring, 1, MAX_RING);
		rc = search(&d, err);
		k3_huge_free(d.ring, MAX_RING);
	} else {
		rc = k3_fail_nomem(err);
	}
	k3_direct_close(&d.file.file);
	return rc;
}

void k3_disk_report_free(struct k3_disk_report *r)
{
	free(r->path);
	free(r->file_system);
	for (size_t i = 0; i < r->warnings; i++)
		free(r->warning[i]);
	free(r->warning);
	free(r->row);
	*r = (struct k3_disk_report){ 0 };
}
