/* SPDX-License-Identifier: Apache-2.0 */
/* k3-tokenize - text to ids, and ids to text. */
#include "cli.h"

#include <k3/buf.h>
#include <k3/index.h>
#include <k3/io.h>
#include <k3/num.h>
#include <k3/tokenizer.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPT_SPECIAL = 256 };

/* The most sequences of a stream, and the most bytes of an id that an error shows. */
enum { SEQUENCES_MAX = 1000000, WORD_MAX = 40 };

/* What the command line asks for, and the memory that is used again and again. */
struct run {
	const char *model;
	bool decode, special, pieces;
	int separator;		/* the byte that ends a document: -l or -0; -1 for neither */
	uint64_t sequences;	/* -b B, the lines of a round; 0 for "all", or without -b */
	bool rounds;		/* -b was given */

	struct k3_tokenizer *t;
	struct k3_ids ids, ends;
	struct k3_buf out;
	/* of -d */
	struct k3_buf word;	/* the id being read, at most WORD_MAX + 1 bytes of it */
	struct k3_ids *sequence;	/* the ids of each sequence, for -b */
	uint64_t count;		/* of these */
	uint64_t lines;		/* that have ended, in all inputs */
};

/* A file or stdin being read: name and position are for error sentences. */
struct input {
	int fd;
	const char *name;
	uint64_t line, nth;	/* from 1: the line, and the id in the line, being read */
};

static const char usage_text[] =
"usage: k3-tokenize [-m MODEL] [--special] [-l | -0] [-p] [FILE...]\n"
"       k3-tokenize [-m MODEL] -d [-b B | -b all] [FILE...]\n"
"Turn text into ids, a document a line; or ids into text.\n"
"\n"
"  -m, --model MODEL    directory or index of the model (default: $K3_MODEL)\n"
"      --special        let the spellings of special ids in the text become these ids\n"
"  -l, --lines          every line is a document, without its newline\n"
"  -0, --null           every document ends with a NUL byte\n"
"  -p, --pieces         a line for each token: the number of its piece, its id, its\n"
"                       bytes in hexadecimal and as a JSON string\n"
"  -d, --decode         write the bytes of ids, at once\n"
"  -b, --batch B        with -d: the input is rounds of B lines; write at its end a\n"
"                       JSON object for each sequence (all: one round of all lines)\n"
"  -h, --help           show this and exit\n"
"  -V, --version        show the version and exit\n";

/* Writes what has been collected. */
static int flush(struct run *r, struct k3_err *err)
{
	int rc;

	if (r->out.failed)
		return k3_fail_nomem(err);
	rc = r->out.len ? cli_write(r->out.data, r->out.len, err) : 0;
	k3_buf_clear(&r->out);
	return rc;
}

/* Many more numbers are written than printf has the time for. */
static void put_number(struct k3_buf *b, uint32_t v)
{
	char digits[10];
	size_t i = sizeof digits;

	do
		digits[--i] = (char)('0' + v % 10);
	while (v /= 10);
	k3_buf_add(b, digits + i, sizeof digits - i);
}

static void put_numbers(struct k3_buf *b, const struct k3_ids *ids, char separator)
{
	size_t i;

	for (i = 0; i < ids->count; i++) {
		if (i)
			k3_buf_char(b, separator);
		put_number(b, ids->id[i]);
	}
}

/* The line of -p for one token: the number of its piece, id, bytes in hexadecimal and as JSON. */
static void put_token(struct run *r, uint32_t piece, uint32_t id)
{
	const char *bytes;
	size_t i, n;

	put_number(&r->out, piece);
	k3_buf_char(&r->out, '\t');
	put_number(&r->out, id);
	k3_buf_char(&r->out, '\t');
	bytes = k3_tokenizer_bytes(r->t, id, &n);
	for (i = 0; i < n; i++)
		k3_buf_printf(&r->out, "%02x", (unsigned char)bytes[i]);
	k3_buf_char(&r->out, '\t');
	k3_buf_json(&r->out, bytes, n);
	k3_buf_char(&r->out, '\n');
}

/* The lines of -p for one document, and the empty line that ends it. */
static void put_pieces(struct run *r)
{
	uint32_t piece = 0;
	size_t i;

	for (i = 0; i < r->ids.count; i++) {
		if (i == r->ends.id[piece])
			piece++;
		put_token(r, piece, r->ids.id[i]);
	}
	k3_buf_char(&r->out, '\n');
}

static int encode_document(struct run *r, const char *text, size_t n, struct k3_err *err)
{
	int rc;

	r->ids.count = r->ends.count = 0;
	rc = k3_tokenizer_encode(r->t, text, n, r->special, &r->ids,
				 r->pieces ? &r->ends : NULL, err);
	if (rc)
		return rc;
	if (r->pieces) {
		put_pieces(r);
	} else {
		put_numbers(&r->out, &r->ids, ' ');
		k3_buf_char(&r->out, '\n');
	}
	return 0;
}

/* Encodes the documents that have ended in text, and takes them out of it. */
static int encode_ended(struct run *r, struct k3_buf *text, size_t seen, struct k3_err *err)
{
	const char *start = text->data, *end = start + text->len, *from = start + seen, *stop;
	size_t rest;
	int rc;

	while ((stop = memchr(from, r->separator, (size_t)(end - from)))) {
		rc = encode_document(r, start, (size_t)(stop - start), err);
		if (rc)
			return rc;
		from = start = stop + 1;
	}
	/* an open document that grows and grows is not moved each time */
	rest = (size_t)(end - start);
	if (start != text->data)
		memmove(text->data, start, rest);
	text->len = rest;
	return 0;
}

/*
 * Reads what is there, waiting for the first byte only: k3_read_full would wait
 * for all of them.  *got is 0 at the end.
 */
static int read_some(struct input *in, void *p, size_t n, size_t *got, struct k3_err *err)
{
	ssize_t k;

	*got = 0;
	do
		k = read(in->fd, p, n);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return k3_fail_errno(err, "%s", in->name);
	*got = (size_t)k;
	return 0;
}

/* Every document is written when its separator has come, or the end. */
static int encode_separated(struct run *r, struct input *in, struct k3_buf *text,
			    struct k3_err *err)
{
	size_t step = 1 << 16, got, seen;
	char *p;
	int rc;

	for (;;) {
		p = k3_buf_reserve(text, step);
		if (!p)
			return k3_fail_nomem(err);
		rc = read_some(in, p, step, &got, err);
		if (rc)
			return rc;
		if (!got)
			break;
		seen = text->len;
		text->len += got;
		rc = encode_ended(r, text, seen, err);
		if (!rc)
			rc = flush(r, err);
		if (rc)
			return rc;
	}
	return text->len ? encode_document(r, text->data, text->len, err) : 0;
}

static int encode_input(struct run *r, struct input *in, struct k3_err *err)
{
	struct k3_buf text = K3_BUF_INIT;
	int rc;

	if (r->separator >= 0) {
		rc = encode_separated(r, in, &text, err);
	} else {
		rc = k3_slurp_fd(in->fd, in->name, UINT32_MAX, &text, err);
		if (!rc)
			rc = encode_document(r, text.data, text.len, err);
	}
	k3_buf_free(&text);
	return rc ? rc : flush(r, err);
}

/* The ids of the sequence that the current line belongs to; NULL without memory. */
static struct k3_ids *sequence_ids(struct run *r)
{
	uint64_t i = r->sequences ? r->lines % r->sequences : r->lines, n;
	struct k3_ids *p;

	if (i >= r->count) {
		n = r->sequences ? r->sequences : i + i / 2 + 16;
		p = k3_reallocarray(r->sequence, n, sizeof *p);
		if (!p)
			return NULL;
		memset(p + r->count, 0, (n - r->count) * sizeof *p);
		r->sequence = p;
		r->count = n;
	}
	return &r->sequence[i];
}

/* The id that r->word spells: its bytes are collected, or it joins its sequence. */
static int decode_word(struct run *r, struct input *in, struct k3_err *err)
{
	uint32_t vocab = k3_tokenizer_vocab(r->t);
	struct k3_ids *ids;
	const char *bytes;
	uint64_t id;
	size_t n;

	if (!r->word.len)
		return 0;
	if (r->word.len > WORD_MAX || strlen(r->word.data) != r->word.len ||
	    !k3_num_u64(r->word.data, vocab - 1, &id))
		return k3_fail(err, K3_EDATA, "%s: line %" PRIu64 ", id %" PRIu64 ": '%.*s' is not "
			       "an id of this model, a number from 0 to %" PRIu32, in->name,
			       in->line, in->nth, WORD_MAX, r->word.data, vocab - 1);
	k3_buf_clear(&r->word);
	in->nth++;
	if (r->rounds) {
		ids = sequence_ids(r);
		return ids ? k3_ids_add(ids, (uint32_t)id, err) : k3_fail_nomem(err);
	}
	bytes = k3_tokenizer_bytes(r->t, (uint32_t)id, &n);
	k3_buf_add(&r->out, bytes, n);
	return 0;
}

static int decode_bytes(struct run *r, struct input *in, const char *p, size_t n,
			struct k3_err *err)
{
	int rc = 0;

	for (; n && !rc; p++, n--) {
		if (*p == ' ' || *p == '\t' || *p == '\n')
			rc = decode_word(r, in, err);
		else if (r->word.len <= WORD_MAX)
			k3_buf_char(&r->word, *p);
		if (!rc && *p == '\n') {
			r->lines++;
			in->line++;
			in->nth = 1;
		}
	}
	return rc;
}

static int decode_input(struct run *r, struct input *in, struct k3_err *err)
{
	char buffer[1 << 14], last = '\n';
	struct k3_err later;
	size_t got;
	int rc;

	for (;;) {
		rc = read_some(in, buffer, sizeof buffer, &got, err);
		if (rc || !got)
			break;
		last = buffer[got - 1];
		rc = decode_bytes(r, in, buffer, got, err);
		/* what came before a bad id is written before it is complained of */
		if (flush(r, &later) && !rc)
			rc = k3_fail(err, K3_EIO, "%s", later.text);
		if (rc)
			return rc;
	}
	if (!rc && r->rounds && last != '\n')
		return k3_fail(err, K3_EDATA, "%s: line %" PRIu64 " has no newline: the round is "
			       "cut short", in->name, in->line);
	if (!rc)
		rc = decode_word(r, in, err);
	return rc ? rc : flush(r, err);
}

/* The JSON lines of -b. */
static int put_sequences(struct run *r, struct k3_err *err)
{
	uint64_t i, n = r->sequences ? r->sequences : r->lines;
	struct k3_buf text = K3_BUF_INIT;
	const char *bytes;
	struct k3_ids *ids, none = K3_IDS_INIT;
	size_t k, len;
	int rc = 0;

	if (r->sequences && r->lines % r->sequences)
		return k3_fail(err, K3_EDATA, "the input ends inside a round: %" PRIu64 " lines are "
			       "not a multiple of %" PRIu64, r->lines, r->sequences);
	for (i = 0; i < n && !rc; i++) {
		ids = i < r->count ? &r->sequence[i] : &none;
		k3_buf_clear(&text);
		for (k = 0; k < ids->count; k++) {
			bytes = k3_tokenizer_bytes(r->t, ids->id[k], &len);
			k3_buf_add(&text, bytes, len);
		}
		k3_buf_printf(&r->out, "{\"sequence\":%" PRIu64 ",\"ids\":[", i);
		put_numbers(&r->out, ids, ',');
		k3_buf_str(&r->out, "],\"text\":");
		k3_buf_json(&r->out, text.len ? text.data : "", text.len);
		k3_buf_str(&r->out, "}\n");
		rc = text.failed ? k3_fail_nomem(err) : flush(r, err);
	}
	k3_buf_free(&text);
	return rc;
}

static int do_input(struct run *r, const char *path, struct k3_err *err)
{
	struct input in = { 0, "standard input", 1, 1 };
	int rc;

	if (path && strcmp(path, "-")) {
		in.name = path;
		in.fd = open(path, O_RDONLY | O_CLOEXEC);
		if (in.fd < 0)
			return k3_fail_errno(err, "%s", path);
	}
	rc = r->decode ? decode_input(r, &in, err) : encode_input(r, &in, err);
	if (in.fd)
		close(in.fd);
	return rc;
}

/*
 * Opens the tokenizer in a directory, or in that of an index.  Only the two files are
 * needed: a directory without weights will do, and no index is made for one.
 */
static int open_tokenizer(const char *model, struct k3_tokenizer **t, struct k3_err *err)
{
	struct k3_index *index;
	struct stat s;
	int rc;

	if (stat(model, &s) || !S_ISREG(s.st_mode))
		return k3_tokenizer_open(model, t, err);
	rc = k3_index_open(model, &index, err);
	if (rc)
		return rc;
	rc = k3_tokenizer_open(k3_index_directory(index), t, err);
	k3_index_close(index);
	return rc;
}

static int do_all(struct run *r, char **files)
{
	const char *model = cli_model(r->model);
	struct k3_err err;
	int rc;

	if (!model)
		return CLI_USAGE;
	rc = open_tokenizer(model, &r->t, &err);
	if (!rc && !*files)
		rc = do_input(r, NULL, &err);
	for (; !rc && *files; files++)
		rc = do_input(r, *files, &err);
	if (!rc && r->rounds)
		rc = put_sequences(r, &err);
	return rc ? cli_error(rc, &err) : CLI_OK;
}

static void run_free(struct run *r)
{
	uint64_t i;

	for (i = 0; i < r->count; i++)
		k3_ids_free(&r->sequence[i]);
	free(r->sequence);
	k3_ids_free(&r->ids);
	k3_ids_free(&r->ends);
	k3_buf_free(&r->out);
	k3_buf_free(&r->word);
	k3_tokenizer_close(r->t);
}

/* Options that have no meaning together are refused rather than one of them ignored. */
static int check(const struct run *r, bool lines, bool null)
{
	if (lines && null)
		return cli_usage("-l and -0 exclude each other");
	if (r->decode && (lines || null || r->pieces || r->special))
		return cli_usage("-d goes with none of -l, -0, -p and --special");
	if (r->rounds && !r->decode)
		return cli_usage("-b needs -d");
	return CLI_OK;
}

/* getopt's own message would be a second one, and would begin with a path. */
static int bad_option(char **argv)
{
	if (optopt && optopt < OPT_SPECIAL)
		return cli_usage("-%c is not an option, or has no argument", optopt);
	return cli_usage("'%s' is not an option", argv[optind - 1]);
}

/* -1 to go on, else the status to exit with. */
static int parse_options(struct run *r, int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "model", required_argument, NULL, 'm' },
		{ "special", no_argument, NULL, OPT_SPECIAL },
		{ "lines", no_argument, NULL, 'l' },
		{ "null", no_argument, NULL, '0' },
		{ "pieces", no_argument, NULL, 'p' },
		{ "decode", no_argument, NULL, 'd' },
		{ "batch", required_argument, NULL, 'b' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 }
	};
	bool lines = false, null = false;
	int c, rc;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "m:l0pdb:hV", long_options, NULL)) != -1) {
		switch (c) {
		case 'm': r->model = optarg; break;
		case OPT_SPECIAL: r->special = true; break;
		case 'l': lines = true; break;
		case '0': null = true; break;
		case 'p': r->pieces = true; break;
		case 'd': r->decode = true; break;
		case 'b':
			r->rounds = true;
			r->sequences = 0;
			if (strcmp(optarg, "all") &&
			    !cli_u64("-b", optarg, 1, SEQUENCES_MAX, &r->sequences))
				return CLI_USAGE;
			break;
		case 'h': fputs(usage_text, stdout); return CLI_OK;
		case 'V': cli_version(); return CLI_OK;
		default: return bad_option(argv);
		}
	}
	r->separator = lines ? '\n' : null ? '\0' : -1;
	rc = check(r, lines, null);
	return rc ? rc : -1;
}

int main(int argc, char **argv)
{
	struct run r = { 0 };
	int status;

	cli_start("k3-tokenize");
	status = parse_options(&r, argc, argv);
	if (status < 0)
		status = do_all(&r, argv + optind);
	run_free(&r);
	return cli_end(status);
}
