/* SPDX-License-Identifier: Apache-2.0 */
/* model/norm.h - RMS norm and the residual mix (docs/numerics.md, N4 and N10). */
#ifndef K3_MODEL_NORM_H
#define K3_MODEL_NORM_H

#include "model/pass.h"

/* The eps of the two MLA latent norms: the released code's class default (N15). */
#define K3_LATENT_EPS 1e-6f

/* out_i = weight_i * (x_i * inv); out may be x. */
void k3_rms(const struct k3_kernels *math, const float *x, const float *weight, uint64_t n,
	    float eps, float *out);

/* 1 / sqrt(DOT(x, x, n) / n + eps) */
float k3_rms_inverse(const struct k3_kernels *math, const float *x, uint64_t n, float eps);

/* The first two passes of every softmax: exp(score - the largest of them), in place; n >= 1. */
void k3_exp_below_largest(const struct k3_kernels *math, float *score, uint64_t n);

/*
 * The softmax-weighted sum of `sources` vectors of `hidden` values, one after the
 * other, oldest first.  scratch: hidden + sources floats; behind hidden it
 * holds the weights afterwards.
 */
void k3_mix(const struct k3_kernels *math, const float *stream, uint32_t sources, uint64_t hidden,
	    const float *fold, float eps, float *scratch, float *out);

/*
 * For each of n tokens: mix its residual stream (or take it as it is where there
 * is only one source that has no block yet: fold NULL), norm it into out.
 */
void k3_mix_and_norm(struct k3_worker *w, const struct k3_pass *p, float *const *residual,
		     uint32_t sources, const float *fold, const float *norm, uint64_t n,
		     float *const *out);

/*
 * Adds y to the running sum of each of n tokens, its vector number `last`; or
 * begins the sum with it where `begin`.  A sum that is not finite ends the run
 * (N14); token gives the names for the message.
 */
void k3_add_to_stream(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
		      const struct k3_token *token, float *const *residual, uint32_t last,
		      bool begin, float *const *y, uint64_t n);

#endif
