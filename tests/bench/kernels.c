/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - the rate of each kernel beside the machine's own limits, all of one run.
 *
 *	kernels [THREADS [SECONDS]]
 *
 * Weights come from memory (256 MB a thread are walked through), as they do when a
 * model is resident.  Every figure is the best of several rounds of all threads together.
 */
#include "math/code.h"
#include "math/kernels.h"
#include "../unit/rng.h"

#include <k3/cpu.h>

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COLS = 7168, LATENT = 3584, VECS = 16, BLOCK = 1 << 20 };

#define AREA ((size_t)256 << 20)
/* Where arithmetic is the wall a shorter walk does, and other programs disturb it less. */
#define SHORT ((size_t)16 << 20)

struct job {
	const struct k3_kernels *math;
	unsigned char *area;		/* AREA bytes of weights */
	unsigned char *scales;
	unsigned char *coded;		/* the same weights in coded blocks, coded_step apart */
	size_t coded_step;
	float *x[VECS], *y[VECS];
	size_t vecs;
	double work;			/* bytes or operations of one call */
	void (*run)(struct job *);
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned threads;
static double seconds = 1;
static struct job jobs[64];

/* ---- what is measured ---- */

static volatile float sink;

/* All bytes of the area once, by as many loads in flight as the core takes. */
static void read_memory(struct job *j)
{
	typedef float v8 __attribute__((vector_size(32)));
	const v8 *p = (const v8 *)j->area;
	v8 a = { 0 }, b = a, c = a, d = a;

	for (size_t i = 0; i < AREA / sizeof *p; i += 4) {
		a += p[i];
		b += p[i + 1];
		c += p[i + 2];
		d += p[i + 3];
	}
	a += b + c + d;
	sink = a[0];
	j->work = (double)AREA;
}

static void bf16(struct job *j)
{
	size_t rows = BLOCK / 2 / COLS / 8 * 8, block = rows * COLS * 2;
	size_t area = j->vecs > 1 ? SHORT : AREA;

	j->work = 0;
	for (size_t at = 0; at + block <= area; at += block) {
		j->math->rows_bf16(j->area + at, rows, COLS, (const float *const *)j->x, j->vecs,
				   j->y);
		j->work += (double)block;
	}
}

/* Counted as the bf16 bytes that the blocks stand for. */
static void coded(struct job *j)
{
	size_t rows = BLOCK / 2 / COLS, block = rows * COLS * 2;
	size_t area = j->vecs > 1 ? SHORT : AREA;

	j->work = 0;
	for (size_t at = 0; at + j->coded_step <= area; at += j->coded_step) {
		j->math->rows_coded(j->coded + at, 0, rows, (const float *const *)j->x, j->vecs,
				    j->y);
		j->work += (double)block;
	}
}

static void mxfp4(struct job *j)
{
	size_t rows = BLOCK * 2 / LATENT / 8 * 8, block = rows * LATENT / 2;
	size_t area = j->vecs > 1 ? SHORT : AREA;

	j->work = 0;
	for (size_t at = 0; at + block <= area; at += block) {
		j->math->rows_mxfp4(j->area + at, j->scales, rows, LATENT,
				    (const float *const *)j->x, j->vecs, j->y);
		j->work += (double)block * 17 / 16;
	}
}

/* DOT of vectors that stay in the first cache: nearly nothing but fused multiply-adds. */
static void dot(struct job *j)
{
	enum { N = 512, TIMES = 20000 };

	for (int i = 0; i < TIMES; i++)
		sink = j->math->dot(j->x[0], j->x[1], N);
	j->work = 2.0 * N * TIMES;
}

static void kda(struct job *j)
{
	enum { DIM = 128, HEADS = 96, TIMES = 4 };
	struct k3_kda_step s = { .q = j->x[0], .k = j->x[1], .v = j->x[2], .alpha = j->x[3],
				 .beta = .5f, .out = j->y[0], .scratch = j->y[1] };

	for (int t = 0; t < TIMES; t++)
		for (size_t h = 0; h < HEADS; h++) {
			s.state = (float *)j->area + h * DIM * DIM;
			j->math->kda_step(&s, DIM);
		}
	j->work = TIMES;
}

static void situ(struct job *j)
{
	for (int i = 0; i < 100; i++)
		j->math->situ(j->x[0], j->x[1], COLS, 4, 25, j->y[0]);
	j->work = 100.0 * COLS;
}

static void exps(struct job *j)
{
	for (int i = 0; i < 100; i++)
		j->math->exp(j->x[0], COLS, j->y[0]);
	j->work = 100.0 * COLS;
}

/* ---- running ---- */

static pthread_barrier_t gate;

static void *work(void *arg)
{
	struct job *j = arg;

	pthread_barrier_wait(&gate);
	j->run(j);
	return NULL;
}

/* One round: the rate of all threads together, in units of work a second. */
static double once(void (*run)(struct job *), const struct k3_kernels *math, size_t vecs)
{
	double begun, total = 0;
	pthread_t t[64];

	pthread_barrier_init(&gate, NULL, threads + 1);
	for (unsigned i = 0; i < threads; i++) {
		jobs[i].run = run;
		jobs[i].math = math;
		jobs[i].vecs = vecs;
		if (pthread_create(&t[i], NULL, work, &jobs[i]))
			exit(1);
	}
	begun = now();
	pthread_barrier_wait(&gate);
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(t[i], NULL);
		total += jobs[i].work;
	}
	pthread_barrier_destroy(&gate);
	return total / (now() - begun);
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* The best of the rounds that fit into the time. */
static double rate(void (*run)(struct job *), const struct k3_kernels *math, size_t vecs)
{
	double best = 0;

	for (double end = now() + seconds; now() < end; )
		best = larger(best, once(run, math, vecs));
	return best;
}

/*
 * The same, and as *memory the best rate of reading memory in rounds in between: what
 * else goes on in a machine slows both alike.
 */
static double rate_beside(void (*run)(struct job *), const struct k3_kernels *math,
			  double *memory)
{
	double best = 0;

	*memory = 0;
	for (double end = now() + 2 * seconds; now() < end; ) {
		*memory = larger(*memory, once(read_memory, NULL, 1));
		best = larger(best, once(run, math, 1));
	}
	*memory *= 1e-9;
	return best * 1e-9;
}

static double one_thread(void (*run)(struct job *), const struct k3_kernels *math, size_t vecs)
{
	unsigned all = threads;
	double r;

	threads = 1;
	r = rate(run, math, vecs);
	threads = all;
	return r;
}

#ifdef __x86_64__
#include <immintrin.h>

/* Twelve independent chains of fused multiply-adds. */
__attribute__((target("avx512f"))) static void peak512(struct job *j)
{
	enum { TIMES = 2000000, CHAINS = 12 };
	__m512 a[CHAINS], m = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(0.001f);

#pragma GCC unroll 12
	for (int k = 0; k < CHAINS; k++)
		a[k] = _mm512_set1_ps((float)k);
	for (int t = 0; t < TIMES; t++)
#pragma GCC unroll 12
		for (int k = 0; k < CHAINS; k++)
			a[k] = _mm512_fmadd_ps(a[k], m, c);
	for (int k = 1; k < CHAINS; k++)
		a[0] = _mm512_add_ps(a[0], a[k]);
	sink = _mm512_cvtss_f32(a[0]);
	j->work = 2.0 * TIMES * CHAINS * 16;
}

__attribute__((target("avx2,fma"))) static void peak256(struct job *j)
{
	enum { TIMES = 2000000, CHAINS = 12 };
	__m256 a[CHAINS], m = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(0.001f);

#pragma GCC unroll 12
	for (int k = 0; k < CHAINS; k++)
		a[k] = _mm256_set1_ps((float)k);
	for (int t = 0; t < TIMES; t++)
#pragma GCC unroll 12
		for (int k = 0; k < CHAINS; k++)
			a[k] = _mm256_fmadd_ps(a[k], m, c);
	for (int k = 1; k < CHAINS; k++)
		a[0] = _mm256_add_ps(a[0], a[k]);
	sink = _mm256_cvtss_f32(a[0]);
	j->work = 2.0 * TIMES * CHAINS * 8;
}

static double peak(void)
{
	double best = 0, r;

	if (__builtin_cpu_supports("avx512f"))
		best = rate(peak512, NULL, 1);
	if (__builtin_cpu_supports("fma") && (r = rate(peak256, NULL, 1)) > best)
		best = r;
	return best;
}
#else
static double peak(void)
{
	return 0;	/* shown as unknown */
}
#endif

static void set_up(struct job *j)
{
	struct rng g = { 1 };

	j->area = aligned_alloc(1 << 21, AREA);
	j->scales = malloc(BLOCK);
	if (!j->area || !j->scales)
		exit(1);
	/* normal bf16 weights; as codes they are arbitrary nibbles */
	for (size_t i = 0; i < AREA / 2; i++) {
		uint64_t u = rng_u64(&g);

		j->area[2 * i] = (unsigned char)u;
		j->area[2 * i + 1] = (unsigned char)((u >> 8 & 0x80) | 0x3c);
	}
	for (size_t i = 0; i < BLOCK; i++)
		j->scales[i] = (unsigned char)(118 + rng_u64(&g) % 6);
	for (int v = 0; v < VECS; v++) {
		j->x[v] = malloc(COLS * sizeof(float));
		j->y[v] = malloc(8192 * sizeof(float));
		if (!j->x[v] || !j->y[v])
			exit(1);
		for (size_t i = 0; i < COLS; i++)
			j->x[v][i] = (float)(rng_unit(&g) - 0.5);
	}
}

/* A few blocks of normal weights, coded, over and over. */
static void set_up_coded(struct job *j)
{
	enum { DIFFERENT = 8 };
	size_t rows = BLOCK / 2 / COLS, n = rows * COLS, at;
	unsigned char *w = malloc(2 * n);
	struct rng g = { 2 };

	j->coded_step = (k3_code_bound(rows, COLS) * 3 / 4 + 63) / 64 * 64;
	j->coded = aligned_alloc(1 << 21, AREA);
	if (!w || !j->coded)
		exit(1);
	for (at = 0; at + j->coded_step <= AREA; at += j->coded_step) {
		if (at >= DIFFERENT * j->coded_step) {
			memcpy(j->coded + at, j->coded + at - DIFFERENT * j->coded_step, j->coded_step);
			continue;
		}
		for (size_t i = 0; i < n; i++) {
			float f = (float)(0.02 * rng_normal(&g));
			uint32_t u;

			memcpy(&u, &f, 4);
			w[2 * i] = (unsigned char)(u >> 16);
			w[2 * i + 1] = (unsigned char)(u >> 24);
		}
		if (k3_code_encode(w, rows, COLS, j->coded + at) > j->coded_step)
			exit(1);
	}
	free(w);
}

static void line(const char *set, const char *what, double r, const char *unit, double limit)
{
	printf("%-9s %-22s %8.2f %-9s", set, what, r, unit);
	if (limit > 0)
		printf(" %5.2f", r / limit);
	putchar('\n');
	fflush(stdout);
}

int main(int argc, char **argv)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	const struct k3_kernels *m;
	double memory, flops, r;

	threads = argc > 1 ? (unsigned)atoi(argv[1]) : cpus < 1 ? 1 : (unsigned)cpus;
	if (argc > 2)
		seconds = atof(argv[2]);
	if (threads < 1 || threads > 64)
		return 2;
	for (unsigned i = 0; i < threads; i++) {
		set_up(&jobs[i]);
		set_up_coded(&jobs[i]);
	}
	printf("# %u threads; the last column is the share of the machine's limit\n", threads);
	memory = rate(read_memory, NULL, 1) * 1e-9;
	flops = peak() * 1e-9;
	line("machine", "memory read", memory, "GB/s", 0);
	line("machine", "fused multiply-add", flops, "GFLOP/s", 0);
	for (unsigned i = 0; (m = k3_kernels_at(i)); i++) {
		r = rate_beside(bf16, m, &memory);
		line(m->name, "bf16, 1 vector", r, "GB/s", memory);
		r = rate(bf16, m, 16);
		line(m->name, "bf16, 16 vectors", r * 16e-9, "GFLOP/s", flops);
		if (threads > 1)
			line(m->name, "  over one thread", r / one_thread(bf16, m, 16), "times", 0);
		r = rate_beside(coded, m, &memory);
		line(m->name, "coded, 1 vector", r, "GB/s bf16", memory);
		line(m->name, "coded, 16 vectors", rate(coded, m, 16) * 16e-9, "GFLOP/s", flops);
		r = rate_beside(mxfp4, m, &memory);
		line(m->name, "MXFP4, 1 vector", r, "GB/s", memory);
		line(m->name, "MXFP4, 3 vectors", rate(mxfp4, m, 3) * 1e-9, "GB/s", memory);
		line(m->name, "MXFP4, 16 vectors", rate(mxfp4, m, 16) * 16e-9 * 4 * 16 / 17, "GFLOP/s",
		     flops);
		line(m->name, "DOT of 512, cached", rate(dot, m, 1) * 1e-9, "GFLOP/s", flops);
		line(m->name, "KDA layer, 96 heads", 1e6 / (rate(kda, m, 1) / threads) / threads,
		     "us/token", 0);
		line(m->name, "SiTU", rate(situ, m, 1) * 1e-6, "M/s", 0);
		line(m->name, "exp", rate(exps, m, 1) * 1e-6, "M/s", 0);
	}
	return 0;
}
