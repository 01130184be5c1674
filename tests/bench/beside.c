/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beside.c - how fast a program reads, beside how fast the disk is in the same moments.
 *
 *	beside FILE COMMAND [ARGUMENT...]
 *
 * A disk that wanders by a factor of two within a minute says nothing about a program from one run to the
 * next.  So the program runs for a second, is stopped, FILE is read for a quarter of one into
 * memory that nobody looks at, and the program goes on, until it ends.  Its bytes are those
 * that the kernel counts, its time is what it was not stopped for.  Sometimes a disk is best with few requests into little
 * memory and sometimes with many: FILE is read in both ways in turns, and the better one counts.
 */
#include "sys/direct.h"
#include "sys/small.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAYS = 2, MOST_READERS = 8, MOST_REQUEST = 2 << 20 };
static const struct way {
	int readers;
	uint64_t request;
} ways[WAYS] = { { 4, 1 << 20 }, { MOST_READERS, MOST_REQUEST } };

static const uint64_t RUNS = 1000000000, IS_STOPPED = 250000000;

static struct {
	struct k3_direct file;
	unsigned char *memory;
	const struct way *way;
	atomic_uint_least64_t next;	/* offset of the next request */
	uint64_t size, until;		/* of the file; when to leave off */
	atomic_uint_least64_t bytes;	/* of this while */
} bare;

static void *read_bare(void *memory)
{
	uint64_t n = bare.way->request;
	struct k3_err err;

	while (k3_nanoseconds() < bare.until) {
		uint64_t at = atomic_fetch_add(&bare.next, n) % (bare.size / n * n) / n * n;

		if (k3_direct_read(&bare.file, memory, n, at, n, &err)) {
			fprintf(stderr, "beside: %s\n", err.text);
			exit(1);
		}
		atomic_fetch_add(&bare.bytes, n);
	}
	return NULL;
}

/* What went by, and how long that took. */
struct sum {
	uint64_t bytes, time;
};

/* Reads in one way for a while. */
static void read_for_a_while(const struct way *way, struct sum *sum)
{
	pthread_t reader[MOST_READERS];
	uint64_t began = k3_nanoseconds();

	bare.way = way;
	bare.until = began + IS_STOPPED;
	bare.bytes = 0;
	for (int i = 0; i < way->readers; i++)
		if (pthread_create(&reader[i], NULL, read_bare, bare.memory + (uint64_t)i * way->request))
			exit(1);
	for (int i = 0; i < way->readers; i++)
		pthread_join(reader[i], NULL);
	sum->time += k3_nanoseconds() - began;
	sum->bytes += bare.bytes;
}

/* The bytes that a process had from disks. */
static uint64_t bytes_of(pid_t pid)
{
	char path[64], line[128];
	unsigned long long n = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "read_bytes: %llu", &n) == 1)
			break;
	fclose(f);
	return n;
}

/* Whether the process ended within so many nanoseconds. */
static bool ends_within(pid_t pid, uint64_t nanoseconds)
{
	uint64_t until = k3_nanoseconds() + nanoseconds;
	siginfo_t info = { .si_pid = 0 };

	while (k3_nanoseconds() < until) {
		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
			return true;
		usleep(2000);
	}
	return false;
}

/* Runs and stops it in turns until it ends: false if it failed.  way: the sum of each. */
static bool take_turns(pid_t pid, struct sum *sum, struct sum *way)
{
	uint64_t began = k3_nanoseconds();
	unsigned turn = 0;
	siginfo_t info;

	while (!ends_within(pid, RUNS)) {
		kill(pid, SIGSTOP);
		if (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT) ||
		    info.si_code != CLD_STOPPED)
			break;
		sum->time += k3_nanoseconds() - began;
		read_for_a_while(&ways[turn % WAYS], &way[turn % WAYS]);
		turn++;
		began = k3_nanoseconds();
		kill(pid, SIGCONT);
	}
	sum->time += k3_nanoseconds() - began;
	sum->bytes = bytes_of(pid);
	return !waitid(P_PID, (id_t)pid, &info, WEXITED) && info.si_code == CLD_EXITED &&
	       !info.si_status;
}

/* GB/s */
static double rate_of(const struct sum *s)
{
	return s->time ? (double)s->bytes / (double)s->time : 0;
}

int main(int argc, char **argv)
{
	struct sum sum = { 0 }, way[WAYS] = { 0 };
	double rate, disk;
	struct k3_err err;
	struct stat st;
	pid_t pid;

	if (argc < 3) {
		fprintf(stderr, "usage: beside FILE COMMAND [ARGUMENT...]\n");
		return 2;
	}
	if (k3_direct_open(&bare.file, argv[1], &err)) {
		fprintf(stderr, "beside: %s\n", err.text);
		return 1;
	}
	bare.memory = k3_huge_new((size_t)MOST_READERS * MOST_REQUEST);
	if (!bare.memory || fstat(bare.file.fd, &st) || st.st_size < MOST_REQUEST) {
		fprintf(stderr, "beside: %s: no memory, or smaller than a request\n", argv[1]);
		return 1;
	}
	bare.size = (uint64_t)st.st_size;
	pid = fork();
	if (pid == 0) {
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	if (pid < 0 || !take_turns(pid, &sum, way) || !way[0].time || !sum.bytes) {
		fprintf(stderr, "beside: %s failed, ended within a second, or read nothing\n", argv[2]);
		return 1;
	}
	rate = rate_of(&sum);
	disk = fmax(rate_of(&way[0]), rate_of(&way[1]));
	fprintf(stderr, "beside: %.1f s, %.1f GB at %.3f GB/s; the disk %.3f GB/s; over %.3f\n",
		(double)sum.time / 1e9, (double)sum.bytes / 1e9, rate, disk, disk / rate);
	return 0;
}
