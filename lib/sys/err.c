/* SPDX-License-Identifier: Apache-2.0 */
/* err.c - the one sentence that a failure leaves behind. */
#include <k3/err.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A name from a broken file must not be able to move the user's cursor. */
static void mask_controls(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

K3_PRINTF(2, 0)
static void format(struct k3_err *err, const char *fmt, va_list ap)
{
	vsnprintf(err->text, sizeof err->text, fmt, ap);
	mask_controls(err->text);
}

int k3_fail(struct k3_err *err, int status, const char *fmt, ...)
{
	va_list ap;

	if (err) {
		va_start(ap, fmt);
		format(err, fmt, ap);
		va_end(ap);
	}
	return status;
}

int k3_fail_errno(struct k3_err *err, const char *fmt, ...)
{
	int saved = errno;
	size_t used;
	va_list ap;

	if (err) {
		va_start(ap, fmt);
		format(err, fmt, ap);
		va_end(ap);
		used = strlen(err->text);
		snprintf(err->text + used, sizeof err->text - used, ": %s",
			 strerror(saved));
	}
	errno = saved;
	return K3_EIO;
}

int k3_fail_nomem(struct k3_err *err)
{
	return k3_fail(err, K3_ENOMEM, "out of memory");
}
