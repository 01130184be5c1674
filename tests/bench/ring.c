/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - how fast a disk is into buffers that somebody uses, by the ways to use them.
 *
 *	ring FILE [ROUNDS [GB]]
 *
 * Some threads read into free buffers, two take them in the order of the file and give them back.  The
 * ways take turns, GB (0.7) at a time, so that whatever else the disk has to do hits all of them
 * alike; of ROUNDS (20) the median, the quartiles and the extremes are printed.
 */
#include "sys/direct.h"
#include "sys/small.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { READERS = 12, USERS = 2, BUFFERS = 32, ROUNDS = 100, BIGGEST = 2 << 20 };

/* What is done with a buffer; each does what the ones before it do. */
enum use {
	NOTHING,
	HASHED,
	WRITTEN,	/* each line, with what it holds */
	WORKED		/* and four times as many bytes hashed in the first cache */
};

static const struct way {
	const char *name;
	size_t request;
	unsigned depth, buffers;
	bool last_first;
	enum use use;
} ways[] = {
	{ "four of 1 MB, 5 buffers", 1 << 20, 4, 5, true, NOTHING },
	{ "  10 buffers in turn", 1 << 20, 4, 10, false, NOTHING },
	{ "    hashed", 1 << 20, 4, 10, false, HASHED },
	{ "  10 buffers, last first", 1 << 20, 4, 10, true, NOTHING },
	{ "    hashed", 1 << 20, 4, 10, true, HASHED },
	{ "    and lines written", 1 << 20, 4, 10, true, WRITTEN },
	{ "eight of 2 MB, 9 buffers", 2 << 20, 8, 9, true, NOTHING },
	{ "twelve of 2 MB, 16 buffers", 2 << 20, 12, 16, true, NOTHING },
	{ "    hashed", 2 << 20, 12, 16, true, HASHED },
	{ "    and lines written", 2 << 20, 12, 16, true, WRITTEN },
	{ "    and computed with", 2 << 20, 12, 16, true, WORKED },
};

enum { WAYS = sizeof ways / sizeof *ways };

static struct {
	const struct way *way;
	struct k3_direct file;
	unsigned char *memory;
	uint64_t from, requests;	/* of the file */
	pthread_mutex_t lock;
	pthread_cond_t ready, room;
	uint64_t issued, taken;
	unsigned idle[BUFFERS];		/* a circle, of which first .. last - 1 are free; or a stack */
	uint64_t first, last;
	unsigned *buffer;		/* of each request */
	bool *here;
	XXH64_hash_t sum;
} job;

static unsigned char *place(unsigned buffer)
{
	return job.memory + buffer * job.way->request;
}

static void *read_all(void *arg)
{
	size_t size = job.way->request;
	struct k3_err err;

	pthread_mutex_lock(&job.lock);
	for (;;) {
		uint64_t i;
		unsigned b;

		while (job.issued < job.requests && job.first == job.last)
			pthread_cond_wait(&job.room, &job.lock);
		if (job.issued == job.requests)
			break;
		i = job.issued++;
		b = job.way->last_first ? job.idle[--job.last] : job.idle[job.first++ % BUFFERS];
		job.buffer[i] = b;
		pthread_mutex_unlock(&job.lock);
		if (k3_direct_read(&job.file, place(b), size, job.from + i * size, size, &err)) {
			fprintf(stderr, "ring: %s\n", err.text);
			exit(1);
		}
		pthread_mutex_lock(&job.lock);
		job.here[i] = true;
		pthread_cond_broadcast(&job.ready);
	}
	pthread_cond_broadcast(&job.room);
	pthread_mutex_unlock(&job.lock);
	return arg;
}

static void *use_all(void *arg)
{
	static const unsigned char cached[1 << 14];
	XXH64_hash_t sum = 0;

	pthread_mutex_lock(&job.lock);
	while (job.taken < job.requests) {
		uint64_t i = job.taken++;

		while (!job.here[i])
			pthread_cond_wait(&job.ready, &job.lock);
		pthread_mutex_unlock(&job.lock);
		if (job.way->use >= HASHED)
			sum += XXH3_64bits(place(job.buffer[i]), job.way->request);
		for (size_t n = 0; job.way->use == WORKED && n < 4 * job.way->request; n += sizeof cached)
			sum += XXH3_64bits_withSeed(cached, sizeof cached, sum);
		if (job.way->use >= WRITTEN)
			k3_direct_used(place(job.buffer[i]), job.way->request);
		pthread_mutex_lock(&job.lock);
		job.idle[job.way->last_first ? job.last++ : job.last++ % BUFFERS] = job.buffer[i];
		pthread_cond_signal(&job.room);
	}
	job.sum += sum;
	pthread_mutex_unlock(&job.lock);
	return arg;
}

/* GB a second of reading so many bytes. */
static double rate(const struct way *w, uint64_t from, uint64_t bytes)
{
	pthread_t reader[READERS], user[USERS];
	uint64_t began;

	job.way = w;
	job.from = from;
	job.requests = bytes / w->request;
	job.issued = job.taken = job.first = 0;
	for (job.last = 0; job.last < w->buffers; job.last++)
		job.idle[job.last] = (unsigned)job.last;
	job.buffer = calloc(job.requests, sizeof *job.buffer);
	job.here = calloc(job.requests, sizeof *job.here);
	if (!job.buffer || !job.here)
		exit(1);
	began = k3_nanoseconds();
	for (unsigned i = 0; i < w->depth; i++)
		if (pthread_create(&reader[i], NULL, read_all, NULL))
			exit(1);
	for (unsigned i = 0; i < USERS; i++)
		if (pthread_create(&user[i], NULL, use_all, NULL))
			exit(1);
	for (unsigned i = 0; i < w->depth; i++)
		pthread_join(reader[i], NULL);
	for (unsigned i = 0; i < USERS; i++)
		pthread_join(user[i], NULL);
	began = k3_nanoseconds() - began;
	free(job.buffer);
	free(job.here);
	return (double)(job.requests * w->request) / (double)began;
}

static int rising(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static double got[WAYS][ROUNDS];
	int rounds = argc > 2 ? atoi(argv[2]) : 20;
	uint64_t bytes = (uint64_t)((argc > 3 ? atof(argv[3]) : 0.7) * 1e9) / BIGGEST * BIGGEST, from = 0;
	struct k3_err err;
	struct stat st;

	if (argc < 2 || rounds < 1 || rounds > ROUNDS || !bytes) {
		fprintf(stderr, "usage: ring FILE [ROUNDS [GB]]\n");
		return 2;
	}
	if (k3_direct_open(&job.file, argv[1], &err)) {
		fprintf(stderr, "ring: %s\n", err.text);
		return 1;
	}
	if (fstat(job.file.fd, &st) || (uint64_t)st.st_size < bytes) {
		fprintf(stderr, "ring: %s: smaller than what is to be read\n", argv[1]);
		return 1;
	}
	job.memory = k3_huge_new(BUFFERS * (size_t)BIGGEST);
	if (!job.memory)
		return 1;
	pthread_mutex_init(&job.lock, NULL);
	pthread_cond_init(&job.ready, NULL);
	pthread_cond_init(&job.room, NULL);
	for (int r = 0; r < rounds; r++)
		for (int w = 0; w < WAYS; w++) {
			from = from + 2 * bytes > (uint64_t)st.st_size ? 0 : from + bytes;
			got[w][r] = rate(&ways[w], from, bytes);
		}
	if (job.file.buffered)
		fprintf(stderr, "ring: %s: direct reads are refused\n", argv[1]);
	printf("# GB/s          %21s quartiles        extremes\n", "median");
	for (int w = 0; w < WAYS; w++) {
		const double *g = got[w];

		qsort(got[w], (size_t)rounds, sizeof *g, rising);
		printf("%-30s %6.2f  %5.2f to %5.2f  %5.2f to %5.2f\n", ways[w].name, g[rounds / 2],
		       g[rounds / 4], g[3 * rounds / 4], g[0], g[rounds - 1]);
	}
	return 0;
}
