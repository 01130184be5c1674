/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - RMS norm, the residual mix over blocks, and the running sum. */
#include "model/norm.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

float k3_rms_inverse(const struct k3_kernels *math, const float *x, uint64_t n, float eps)
{
	return 1.0f / sqrtf(math->dot(x, x, n) / (float)n + eps);
}

void k3_rms(const struct k3_kernels *math, const float *x, const float *weight, uint64_t n,
	    float eps, float *out)
{
	float inv = k3_rms_inverse(math, x, n, eps);

	for (uint64_t i = 0; i < n; i++)
		out[i] = weight[i] * (x[i] * inv);
}

void k3_exp_below_largest(const struct k3_kernels *math, float *score, uint64_t n)
{
	float largest = score[0];

	for (uint64_t s = 1; s < n; s++)
		largest = score[s] > largest ? score[s] : largest;
	for (uint64_t s = 0; s < n; s++)
		score[s] -= largest;
	math->exp(score, n, score);
}

void k3_mix(const struct k3_kernels *math, const float *stream, uint32_t sources, uint64_t hidden,
	    const float *fold, float eps, float *scratch, float *out)
{
	float *key = scratch, *p = scratch + hidden, sum = 0;

	for (uint32_t s = 0; s < sources; s++) {
		const float *v = stream + s * hidden;
		float inv = k3_rms_inverse(math, v, hidden, eps);

		for (uint64_t i = 0; i < hidden; i++)
			key[i] = v[i] * inv;
		p[s] = math->dot(key, fold, hidden);
	}
	k3_exp_below_largest(math, p, sources);
	for (uint32_t s = 0; s < sources; s++)
		sum += p[s];
	memset(out, 0, hidden * sizeof *out);
	for (uint32_t s = 0; s < sources; s++) {
		p[s] /= sum;
		math->axpy(p[s], stream + s * hidden, hidden, out);
	}
}

void k3_mix_and_norm(struct k3_worker *w, const struct k3_pass *p, float *const *residual,
		     uint32_t sources, const float *fold, const float *norm, uint64_t n,
		     float *const *out)
{
	uint64_t hidden = p->config->hidden, t;
	uint32_t loop = k3_loop(w);

	while (k3_loop_next(w, loop, n, &t)) {
		if (fold)
			k3_mix(p->math, residual[t], sources, hidden, fold, p->config->eps,
			       p->scratch[w->rank], out[t]);
		else
			memcpy(out[t], residual[t], hidden * sizeof(float));
		k3_rms(p->math, out[t], norm, hidden, p->config->eps, out[t]);
	}
}

static bool all_finite(const float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (!isfinite(x[i]))
			return false;
	return true;
}

void k3_add_to_stream(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
		      const struct k3_token *token, float *const *residual, uint32_t last,
		      bool begin, float *const *y, uint64_t n)
{
	uint64_t hidden = p->config->hidden, t;
	uint32_t loop = k3_loop(w);
	struct k3_err err;

	while (k3_loop_next(w, loop, n, &t)) {
		float *sum = residual[t] + last * hidden;

		if (begin)
			memcpy(sum, y[t], hidden * sizeof *sum);
		else
			for (uint64_t i = 0; i < hidden; i++)
				sum[i] += y[t][i];
		if (!all_finite(sum, hidden))
			k3_worker_fail_at(w, t, k3_fail(&err, K3_EDATA, "layer %" PRIu32
					", sequence %" PRIu32 ", position %" PRIu64
					": the hidden state is not finite", layer,
					token[t].sequence, token[t].position), &err);
	}
}
