/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/err.h - how the library reports failure.
 *
 * A function that can fail returns 0 or a negative enum k3_status and, through
 * its last parameter, one sentence that names what was wrong and where: the
 * file, and the offset, tensor or position.  The library never prints and never
 * exits.
 */
#ifndef K3_ERR_H
#define K3_ERR_H

#ifdef __cplusplus
extern "C" {
#endif

#define K3_API __attribute__((visibility("default")))
#define K3_NODISCARD __attribute__((warn_unused_result))
#define K3_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Pinned numbers: they are part of the ABI. */
enum k3_status {
	K3_OK = 0,
	K3_ENOMEM = -1,	/* memory could not be had */
	K3_EIO = -2,	/* the system refused or cut short an operation */
	K3_EDATA = -3,	/* the bytes are not what they must be */
	K3_EARG = -4,	/* the caller asked for something impossible */
	K3_EBUSY = -5,	/* another process holds the file */
	K3_ESTALE = -6	/* an index, state or shard that belongs to another model, or was changed since */
};

/* One sentence, without a newline and without the program's name. */
struct k3_err {
	char text[4096];
};

/*
 * Writes the sentence into err (which may be NULL) and returns status, so that
 * a failing function can end with "return k3_fail(err, K3_EDATA, ...)".
 * Control characters that came in with names are shown as '?'.
 */
K3_API int k3_fail(struct k3_err *err, int status, const char *fmt, ...)
	K3_PRINTF(3, 4);

/* As k3_fail with K3_EIO, and ": " and the text of errno behind the sentence. */
K3_API int k3_fail_errno(struct k3_err *err, const char *fmt, ...)
	K3_PRINTF(2, 3);

/* "out of memory", for every allocation that failed; returns K3_ENOMEM. */
K3_API int k3_fail_nomem(struct k3_err *err);

#ifdef __cplusplus
}
#endif
#endif
