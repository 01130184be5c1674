/* SPDX-License-Identifier: Apache-2.0 */
/* cli.c - the common part of the programs: prologue, messages, numbers, epilogue. */
#include "cli.h"

#include <k3/buf.h>
#include <k3/io.h>
#include <k3/num.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *program_name = "k3";

/* What is said of a mapped file that cannot be read, and whether a thread is saying it. */
static char bus_text[160];
static atomic_flag bus_told = ATOMIC_FLAG_INIT;

/*
 * A page of a mapped file that is not there any more.  The file cannot be named: the address tells
 * nothing here, and little may be called.  A SIGBUS of another kind kills, as ever.
 */
static void on_bus(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_code != BUS_ADRERR) {
		signal(number, SIG_DFL);
		raise(number);
		return;
	}
	while (atomic_flag_test_and_set(&bus_told))
		pause();
	if (write(2, bus_text, strlen(bus_text)) < 0) {
		/* nowhere left to complain to */
	}
	_exit(CLI_FAIL);
}

static void catch_bus(void)
{
	struct sigaction sa = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };

	snprintf(bus_text, sizeof bus_text, "%s: a mapped file, most likely the index, can no "
		 "longer be read: it was cut short, or its disk failed\n", program_name);
	sigemptyset(&sa.sa_mask);
	sigaction(SIGBUS, &sa, NULL);
}

void cli_start(const char *program)
{
	sigset_t set;

	program_name = program;
	/*
	 * A closed descriptor must not become that of some file.  What goes to a closed stdout is
	 * lost, so writing to it has to fail, as it would without us.
	 */
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) != fd)
			break;
	/* parents that ignore SIGPIPE would make us write into nothing for hours */
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	signal(SIGPIPE, SIG_DFL);
	/* a file that reaches the limit of its size is a failed write, not a death */
	signal(SIGXFSZ, SIG_IGN);
	catch_bus();
}

int cli_end(int status)
{
	if (ferror(stdout) || fclose(stdout)) {
		cli_warn("standard output: %s", strerror(errno));
		if (!status)
			status = CLI_FAIL;
	}
	return status;
}

K3_PRINTF(1, 0)
static void say(const char *fmt, va_list ap, const char *more)
{
	struct k3_err line;
	struct k3_buf b = K3_BUF_INIT;

	vsnprintf(line.text, sizeof line.text, fmt, ap);
	k3_fail(&line, 0, "%s", strdupa(line.text));
	k3_buf_printf(&b, "%s: %s\n%s", program_name, line.text, more);
	if (b.data && write(2, b.data, b.len) < 0) {
		/* nowhere left to complain to */
	}
	k3_buf_free(&b);
}

void cli_warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap, "");
	va_end(ap);
}

int cli_error(int status, const struct k3_err *err)
{
	cli_warn("%s", err->text);
	return status == K3_EARG ? CLI_USAGE : CLI_FAIL;
}

int cli_usage(const char *fmt, ...)
{
	char more[128];
	va_list ap;

	snprintf(more, sizeof more, "Try '%s --help'.\n", program_name);
	va_start(ap, fmt);
	say(fmt, ap, more);
	va_end(ap);
	return CLI_USAGE;
}

double cli_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cli_version(void)
{
	printf("%s (k3) %s\n", program_name, K3_VERSION);
}

void *cli_grow(void *array, size_t n, size_t size)
{
	void *p = k3_reallocarray(array, n + 1, size);

	if (!p) {
		cli_warn("out of memory");
		exit(CLI_FAIL);
	}
	return p;
}

const char *cli_model(const char *option)
{
	const char *m = option ? option : getenv("K3_MODEL");

	if (m && *m)
		return m;
	cli_usage("no model: give -m MODEL or set K3_MODEL");
	return NULL;
}

const char *cli_model_operand(const char *option, int count, char **operand)
{
	if (!count)
		return cli_model(option);
	if (count > 1)
		cli_usage("too many operands: '%s'", operand[1]);
	else if (option)
		cli_usage("the model is named twice: '%s' and '%s'", option, operand[0]);
	else
		return cli_model(operand[0]);
	return NULL;
}

bool cli_u64(const char *option, const char *text, uint64_t min, uint64_t max,
	     uint64_t *out)
{
	if (k3_num_u64(text, max, out) && *out >= min)
		return true;
	cli_usage("%s: '%s' is not a whole number from %" PRIu64 " to %" PRIu64,
		  option, text, min, max);
	return false;
}

bool cli_size(const char *option, const char *text, uint64_t *out)
{
	static const char unit[] = "kMGT";
	size_t n = strspn(text, "0123456789.");
	const char *u = text + n, *power = *u ? strchr(unit, *u == 'K' ? 'k' : *u) : NULL;
	double value, step = u[0] && u[1] == 'i' ? 1024 : 1000;
	char number[32];

	if (!n || n >= sizeof number || (*u && (!power || (u[1] && strcmp(u + 1, "i")))))
		goto wrong;
	memcpy(number, text, n);
	number[n] = '\0';
	if (!k3_num_double(number, &value))
		goto wrong;
	for (; power && power >= unit; power--)
		value *= step;
	if (value < 1 || value >= 0x1p63)
		goto wrong;
	*out = (uint64_t)value;
	return true;
wrong:
	cli_usage("%s: '%s' is no size, like 750M or 8Gi", option, text);
	return false;
}

bool cli_double(const char *option, const char *text, double min, double max,
		double *out)
{
	if (k3_num_double(text, out) && *out >= min && *out <= max)
		return true;
	cli_usage("%s: '%s' is not a number from %g to %g", option, text, min, max);
	return false;
}

bool cli_binary_stdout(void)
{
	if (!isatty(1))
		return true;
	cli_usage("standard output is a terminal; redirect the records into a file or a pipe");
	return false;
}

int cli_write(const void *p, size_t n, struct k3_err *err)
{
	int rc = k3_write_full(1, p, n, "standard output", err);

	if (rc && errno == EPIPE)
		raise(SIGPIPE);
	return rc;
}

int cli_create(const char *path, int *fd, struct k3_err *err)
{
	uint64_t n = UINT64_MAX;

	if (!strcmp(path, "/dev/stdout"))
		n = 1;
	else if (!strcmp(path, "/dev/stderr"))
		n = 2;
	else if (!strncmp(path, "/dev/fd/", 8) && !k3_num_u64(path + 8, INT32_MAX, &n))
		n = UINT64_MAX;
	do
		*fd = n <= INT32_MAX ? fcntl((int)n, F_DUPFD_CLOEXEC, 3) :
		      open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	while (*fd < 0 && errno == EINTR);
	return *fd < 0 ? k3_fail_errno(err, "%s", path) : 0;
}
