/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c - looking tensors up, and an index that is damaged in every possible place.
 */
#include "tap.h"
#include <k3/buf.h>
#include <k3/index.h>
#include <k3/io.h>
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static struct k3_err err;
static char file[] = "/tmp/k3-unit-index-XXXXXX";

static void lookups(const struct k3_index *ix)
{
	struct k3_tensor t, u;
	char name[256];
	uint64_t n = 0;
	bool same = true;

	ok(k3_index_count(ix) == 1002,
	   "1002 tensors: 229 of layers, 5 of the model, 768 of experts");
	for (uint64_t i = 0; i < k3_index_count(ix); i++) {
		same = k3_index_at(ix, i, &t) &&
		       !k3_index_tensor(ix, t.role, t.layer, t.expert, &u, &err) && same &&
		       t.role == u.role && t.layer == u.layer && t.expert == u.expert &&
		       t.shard == u.shard && t.offset == u.offset && t.bytes == u.bytes &&
		       t.rows * t.cols == u.rows * u.cols;
		n += t.bytes;
	}
	ok(same, "by number and by role they are the same");
	ok(n == 7392896, "together they have the bytes of the checkpoint's own index");

	ok(!k3_index_tensor(ix, K3_KDA_Q_CONV, 4, 0, &t, &err) && t.dtype == K3_F32 &&
	       t.rank == 3 && t.shape[0] == 128 && t.shape[1] == 1 && t.shape[2] == 4 &&
	       t.rows == 128 && t.cols == 4 && t.bytes == 2048,
	   "a convolution is a matrix of 128 rows");
	ok(!k3_index_tensor(ix, K3_FINAL_NORM, 0, 0, &t, &err) && t.rank == 1 && t.rows == 1 &&
	   t.cols == 192 && t.bytes == 384, "a norm is one row");
	ok(!k3_index_tensor(ix, K3_W2_SCALE, 8, 15, &t, &err) && t.dtype == K3_U8 && t.rows == 96 &&
	   t.cols == 2, "scales of the last expert");
	k3_role_name(K3_W2_SCALE, 8, 15, name, sizeof name);
	ok(!strcmp(name,
		   "language_model.model.layers.8.block_sparse_moe.experts.15.w2.weight_scale"),
	   "and their name");
	k3_role_name(K3_HEAD, 0, 0, name, sizeof name);
	ok(!strcmp(name, "language_model.lm_head.weight"), "the name of the head");
	ok(k3_role_name(K3_HEAD, 0, 0, name, 4) == 29 && !strcmp(name, "lan"),
	   "a name is cut as by snprintf");

	ok(k3_index_tensor(ix, K3_MLA_QA, 0, 0, &t, &err) == K3_EARG &&
	   strstr(err.text, "layers.0.self_attn.q_a_proj"), "a KDA layer has no q_a_proj");
	ok(k3_index_tensor(ix, K3_KDA_Q, 3, 0, &t, &err) == K3_EARG, "an MLA layer no q_proj");
	ok(k3_index_tensor(ix, K3_DENSE_UP, 1, 0, &t, &err) == K3_EARG, "layer 1 is not dense");
	ok(k3_index_tensor(ix, K3_W1, 0, 0, &t, &err) == K3_EARG, "layer 0 has no experts");
	ok(k3_index_tensor(ix, K3_W1, 1, 16, &t, &err) == K3_EARG, "an expert too many");
	ok(k3_index_tensor(ix, K3_ATTN_NORM, 9, 0, &t, &err) == K3_EARG, "a layer too many");
	ok(k3_index_tensor(ix, K3_EMBED, 1, 0, &t, &err) == K3_EARG, "one embedding only");
	ok(k3_index_tensor(ix, K3_ATTN_NORM, 1, 1, &t, &err) == K3_EARG, "a norm of no expert");
	ok(k3_index_tensor(ix, K3_ROLES, 0, 0, &t, &err) == K3_EARG, "no such role");
}

static int reads(void)
{
	struct k3_index *ix;
	int rc = k3_index_read(file, &ix, &err);

	if (!rc)
		k3_index_close(ix);
	return rc;
}

static void damage(const char *what)
{
	struct k3_buf whole = K3_BUF_INIT;
	static const unsigned char change[] = { 0x01, 0x80, 0xff };
	size_t failed = 0, n;
	unsigned char c;
	int fd = open(file, O_RDWR | O_CLOEXEC);

	if (fd < 0 || k3_slurp(file, 1 << 20, &whole, &err))
		exit(99);
	n = whole.len;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < sizeof change; k++) {
			c = (unsigned char)whole.data[i] ^ change[k];
			if (pwrite(fd, &c, 1, (off_t)i) != 1)
				exit(99);
			failed += reads() == K3_EDATA;
			if (pwrite(fd, &whole.data[i], 1, (off_t)i) != 1)
				exit(99);
		}
	ok(failed == n * sizeof change, "%s: a byte changed in any of %zu places is noticed", what,
	   n);
	ok(!reads(), "unchanged it is read");
	failed = 0;
	for (size_t i = n; i-- > 0;) {
		if (ftruncate(fd, (off_t)i))
			exit(99);
		failed += reads() == K3_EDATA;
	}
	ok(failed == n, "%s: every shorter file is refused", what);
	/* one byte too many */
	if (pwrite(fd, whole.data, n, 0) != (ssize_t)n || pwrite(fd, "", 1, (off_t)n) != 1)
		exit(99);
	ok(reads() == K3_EDATA && strstr(err.text, "should have"), "%s: so is a longer one", what);
	if (ftruncate(fd, (off_t)n))
		exit(99);
	ok(!reads(), "restored it is read");
	if (pwrite(fd, "\1", 1, 8) != 1)
		exit(99);
	ok(reads() == K3_EDATA && strstr(err.text, "version 1"), "%s: so is another version", what);
	if (pwrite(fd, whole.data, n, 0) != (ssize_t)n)
		exit(99);
	close(fd);
	k3_buf_free(&whole);
}

/* Changes with a checksum that fits again: whatever is made of them, nothing may crash. */
static void forge(void)
{
	struct k3_buf whole = K3_BUF_INIT;
	struct k3_index *ix;
	struct k3_census n;
	struct k3_tensor t;
	uint64_t sum, read = 0;
	int fd = open(file, O_RDWR | O_CLOEXEC);

	if (fd < 0 || k3_slurp(file, 1 << 20, &whole, &err))
		exit(99);
	for (size_t i = 0; i < whole.len - 8; i++) {
		whole.data[i] ^= i % 3 ? 0x01 : 0xff;
		sum = htole64(XXH3_64bits(whole.data, whole.len - 8));
		memcpy(whole.data + whole.len - 8, &sum, sizeof sum);
		if (pwrite(fd, whole.data, whole.len, 0) != (ssize_t)whole.len)
			exit(99);
		whole.data[i] ^= i % 3 ? 0x01 : 0xff;
		if (k3_index_read(file, &ix, &err))
			continue;
		read++;
		k3_index_census(ix, &n);
		for (uint64_t k = 0; k < k3_index_count(ix); k += 97)
			if (!k3_index_at(ix, k, &t))
				read +=
				    k3_index_tensor(ix, t.role, t.layer, t.expert, &t, &err) == 0;
		k3_index_close(ix);
	}
	ok(read > 0, "forged indexes crash nothing");
	close(fd);
	k3_buf_free(&whole);
}

int main(void)
{
	struct k3_index *ix;
	struct k3_census n;
	uint64_t sum, other;

	close(mkstemp(file));
	unlink(file);
	if (!ok(!k3_index_build("share/demo/", file, &ix, &err), "the demo is indexed")) {
		printf("# %s\n", err.text);
		return tap_done();
	}
	ok(!strcmp(k3_index_directory(ix), "share/demo") && k3_index_shards(ix) == 2 &&
	   !strcmp(k3_index_shard_path(ix, 1), "share/demo/model-00002-of-000002.safetensors"),
	   "directory and shards");
	ok(access(k3_index_file(ix), F_OK) == 0 && !strcmp(k3_index_file(ix), file), "its file");
	lookups(ix);
	k3_index_census(ix, &n);
	ok(n.kda_layers == 6 && n.mla_layers == 3 && n.dense_layers == 1 && n.moe_layers == 8,
	   "kinds of layers");
	/* 3 matrices of 64 x 96: half a byte a value, and a scale for 32 */
	ok(n.expert.parameters == 18432 && n.expert.bytes == 9792 && n.missing.tensors == 0,
	   "an expert");
	damage("without sums");
	k3_index_close(ix);

	if (!ok(!k3_index_build("share/demo", file, &ix, &err) && !k3_index_add_sums(&ix, &err),
		"sums are added"))
		return tap_done();
	ok(k3_index_sum(ix, 1, 0, &sum) && k3_index_sum(ix, 1, 1, &other) && sum != other,
	   "experts have different sums");
	ok(!k3_index_sum(ix, 0, 0, &sum) && !k3_index_sum(ix, 1, 16, &sum) &&
	   !k3_index_sum(ix, 9, 0, &sum), "no sums without experts");
	ok(k3_index_row_sum(ix, 0, &sum) && k3_index_row_sum(ix, 2047, &other) && sum != other &&
	   !k3_index_row_sum(ix, 2048, &sum), "and so have rows of the embedding");
	ok(!k3_index_verify(ix, &err), "they are verified");
	damage("with sums");
	forge();
	k3_index_close(ix);
	unlink(file);
	ok(k3_index_read(file, &ix, &err) == K3_EIO && strstr(err.text, file), "no such file");
	return tap_done();
}
