/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beside.c - how fast a program reads, beside how fast the disk is in the same moments.
 *
 *	beside [-m MODEL] FILE COMMAND [ARGUMENT...]
 *
 * A disk that wanders by a factor of two within a minute says nothing about a program from one run to the
 * next.  So the program runs for a second, is stopped, FILE is read for a quarter of one into
 * memory that nobody looks at, and the program goes on, until it ends.  Its bytes are those
 * that the kernel counts, its time is what it was not stopped for.  Sometimes a disk is best with few requests into little
 * memory and sometimes with many: FILE is read in two ways in turns, and the better one counts.
 *
 * Some places of a disk can be faster than others, and a program that streams a model does not stay in its trunk
 * file.  With -m, in further turns, a quarter of the bytes come from anywhere in the shards of MODEL, as much as an expert
 * at a time: what the disk gives for places like those of the program, to somebody who does nothing else.
 */
#include "sys/direct.h"
#include "sys/small.h"
#include "../unit/rng.h"

#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_READERS = 8, MOST_REQUEST = 2 << 20, ALONG = 2, WAYS = 4 };

/* Bytes of FILE, and of a shard behind them: near those of three experts, and of one. */
enum { TRUNK = 48 << 20, EXPERT = 16 << 20 };

/* The first ones go along FILE, the others to experts too. */
static const struct way {
	int readers;
	uint64_t request;
} ways[WAYS] = {
	{ 4, 1 << 20 },
	{ MOST_READERS, MOST_REQUEST },
	{ 4, MOST_REQUEST },
	{ MOST_READERS, MOST_REQUEST },
};

static const uint64_t RUNS = 1000000000, IS_STOPPED = 250000000;

struct file {
	struct k3_direct direct;
	uint64_t size;
};

static struct {
	struct file file, *shard;
	size_t shards;
	unsigned char *memory;
	const struct way *way;
	atomic_uint_least64_t next;	/* where the next request would be, if all were along one file */
	uint64_t until;			/* when to leave off */
	atomic_uint_least64_t bytes;	/* of this while */
} bare;

_Noreturn static void fail(const char *text)
{
	fprintf(stderr, "beside: %s\n", text);
	exit(1);
}

/* The file and the offset of a request, of which `at` bytes were asked for before. */
static struct file *place(uint64_t at, uint64_t *offset)
{
	uint64_t n = bare.way->request, nth = at / (TRUNK + EXPERT);
	uint64_t within = at % (TRUNK + EXPERT) / n * n;
	bool along = bare.way < ways + ALONG;
	struct rng rng = { nth };
	struct file *f = &bare.file;

	if (along || within < TRUNK) {
		/* half of the file apart, so that neither finds what the other one has read */
		*offset = (along ? at / n * n : f->size / 2 / n * n + nth * TRUNK + within) % (f->size / n * n);
		return f;
	}
	f = &bare.shard[rng_u64(&rng) % bare.shards];
	*offset = k3_direct_down(rng_u64(&rng) % (f->size - EXPERT)) + within - TRUNK;
	return f;
}

static void *read_bare(void *memory)
{
	uint64_t n = bare.way->request, offset;
	struct k3_err err;

	while (k3_nanoseconds() < bare.until) {
		struct file *f = place(atomic_fetch_add(&bare.next, n), &offset);

		if (k3_direct_read(&f->direct, memory, n, offset, n, &err))
			fail(err.text);
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
	unsigned turn = 0, n = bare.shards ? WAYS : ALONG;
	siginfo_t info;

	while (!ends_within(pid, RUNS)) {
		kill(pid, SIGSTOP);
		if (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT) ||
		    info.si_code != CLD_STOPPED)
			break;
		sum->time += k3_nanoseconds() - began;
		read_for_a_while(&ways[turn % n], &way[turn % n]);
		turn++;
		began = k3_nanoseconds();
		kill(pid, SIGCONT);
	}
	sum->time += k3_nanoseconds() - began;
	sum->bytes = bytes_of(pid);
	return !waitid(P_PID, (id_t)pid, &info, WEXITED) && info.si_code == CLD_EXITED &&
	       !info.si_status;
}

/* GB/s, of the best one of some ways. */
static double best(const struct sum *s, int n)
{
	double rate = 0;

	for (int i = 0; i < n; i++)
		if (s[i].time)
			rate = fmax((double)s[i].bytes / (double)s[i].time, rate);
	return rate;
}

static void open_file(struct file *f, const char *path, uint64_t least)
{
	struct k3_err err;
	struct stat st;

	if (k3_direct_open(&f->direct, path, &err))
		fail(err.text);
	if (fstat(f->direct.fd, &st) || st.st_size <= (off_t)least) {
		fprintf(stderr, "beside: %s: smaller than what is read at a time\n", path);
		exit(1);
	}
	f->size = (uint64_t)st.st_size;
}

static void open_shards(const char *model)
{
	char pattern[4096];
	glob_t found;

	snprintf(pattern, sizeof pattern, "%s/*.safetensors", model);
	if (glob(pattern, 0, NULL, &found))
		fail("no shards");
	bare.shards = found.gl_pathc;
	bare.shard = calloc(bare.shards, sizeof *bare.shard);
	if (!bare.shard)
		fail("no memory");
	for (size_t i = 0; i < bare.shards; i++)
		open_file(&bare.shard[i], found.gl_pathv[i], EXPERT);
}

static void read_options(int argc, char **argv)
{
	int c;

	bare.next = (uint64_t)time(NULL) % 1000000 << 30;	/* other places in each run */
	while ((c = getopt(argc, argv, "+m:")) == 'm')
		open_shards(optarg);
	if (c != -1 || argc - optind < 2) {
		fprintf(stderr, "usage: beside [-m MODEL] FILE COMMAND [ARGUMENT...]\n");
		exit(2);
	}
	open_file(&bare.file, argv[optind], MOST_REQUEST);
	bare.memory = k3_huge_new((size_t)MOST_READERS * MOST_REQUEST);
	if (!bare.memory)
		fail("no memory");
}

int main(int argc, char **argv)
{
	struct sum sum = { 0 }, way[WAYS] = { 0 };
	double rate, disk, mixed;
	char **command;
	pid_t pid;

	read_options(argc, argv);
	command = argv + optind + 1;
	pid = fork();
	if (pid == 0) {
		/* or it would stay stopped where a bare read fails */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execvp(*command, command);
		perror(*command);
		_exit(127);
	}
	if (pid < 0 || !take_turns(pid, &sum, way) || !way[0].time || !sum.bytes) {
		fprintf(stderr, "beside: %s failed, ended within a second, or read nothing\n", *command);
		return 1;
	}
	rate = best(&sum, 1);
	disk = best(way, ALONG);
	mixed = best(way + ALONG, WAYS - ALONG);
	fprintf(stderr, "beside: %.1f s, %.1f GB at %.3f GB/s; the disk %.3f GB/s; over %.3f",
		(double)sum.time / 1e9, (double)sum.bytes / 1e9, rate, disk, disk / rate);
	if (mixed > 0)
		fprintf(stderr, "; at places like these %.3f GB/s; over %.3f", mixed, mixed / rate);
	fprintf(stderr, "\n");
	return 0;
}
