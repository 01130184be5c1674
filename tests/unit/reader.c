/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader.c - what weights pass through: the order of use against a list by hand, blocks that stay,
 * and readers with as little room as they may have, whose users are slow, many, or gone.
 */
#define CHECKPOINT_WIDTH "1536"
#include "checkpoint.h"
#include "engine/pins.h"
#include "engine/reader.h"
#include "engine/weights.h"
#include "model/layer.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>

static struct checkpoint model;
static unsigned char *shard[2];
static struct k3_err err;

/* Whatever waits for ever. */
static void on_alarm(int sig)
{
	static const char text[] = "Bail out! a reader or a user waits for ever\n";

	(void)sig;
	_exit(write(1, text, sizeof text - 1) < 0 ? 2 : 1);
}

/* ---- the order ---- */

static const uint32_t some_experts[] = { 1, 4, 9 };

/* All steps of a route: "SECTION NAME" of each, with the number of its first entry after it. */
static void list(struct k3_route *r, bool tell, struct k3_buf *out)
{
	struct k3_walk w;
	struct k3_step s;
	enum k3_walked found;
	uint64_t entry = 0;

	k3_walk_begin(&w, r);
	while ((found = k3_walk_next(&w, &s)) != K3_WALK_END) {
		char name[K3_NAME], *tail;

		if (found == K3_WALK_UNKNOWN && !tell) {
			k3_buf_str(out, "?");
			return;
		}
		if (found == K3_WALK_UNKNOWN) {
			if (k3_walk_next(&w, &s) != K3_WALK_UNKNOWN)
				k3_buf_str(out, "guessed ");
			r->experts_layer = w.section;
			continue;
		}
		k3_role_name(s.role, s.section < model.config.layers ? s.section : 0, s.expert, name,
			     sizeof name);
		tail = strstr(name, "layers.");
		k3_buf_printf(out, "%u %s%s%s\n", s.section, tail ? tail + 9 : name,
			      s.use && s.use->values ? " values" : "", s.first == entry ? "" : " misnumbered");
		entry += s.entries;
		if (!s.use && s.entries != 1 + s.cut.blocks)
			k3_buf_str(out, "no scales\n");
	}
}

#define KDA_VECTORS(n) \
	n " self_attention_res_norm.weight\n" n " self_attention_res_proj.weight\n" \
	n " mlp_res_norm.weight\n" n " mlp_res_proj.weight\n" n " input_layernorm.weight\n" \
	n " post_attention_layernorm.weight\n" n " self_attn.q_conv1d.weight\n" \
	n " self_attn.k_conv1d.weight\n" n " self_attn.v_conv1d.weight\n" n " self_attn.dt_bias\n" \
	n " self_attn.A_log\n" n " self_attn.o_norm.weight\n"
#define KDA_DENSE(n) \
	n " self_attn.f_a_proj.weight\n" n " self_attn.q_proj.weight\n" n " self_attn.k_proj.weight\n" \
	n " self_attn.v_proj.weight\n" n " self_attn.g_proj.weight\n" n " self_attn.b_proj.weight\n" \
	n " self_attn.f_b_proj.weight\n" n " self_attn.o_proj.weight\n" \
	n " mlp.gate_proj.weight\n" n " mlp.up_proj.weight\n" n " mlp.down_proj.weight\n"
#define MLA_VECTORS(n) \
	n " self_attention_res_norm.weight\n" n " self_attention_res_proj.weight\n" \
	n " mlp_res_norm.weight\n" n " mlp_res_proj.weight\n" n " input_layernorm.weight\n" \
	n " post_attention_layernorm.weight\n" n " self_attn.q_a_layernorm.weight\n" \
	n " self_attn.kv_a_layernorm.weight\n" n " block_sparse_moe.gate.e_score_correction_bias\n" \
	n " block_sparse_moe.routed_expert_norm.weight\n"
#define MLA_MOE(n) \
	n " self_attn.q_a_proj.weight\n" n " self_attn.kv_a_proj_with_mqa.weight\n" \
	n " self_attn.g_proj.weight\n" n " self_attn.q_b_proj.weight\n" n " self_attn.kv_b_proj.weight\n" \
	n " self_attn.kv_b_proj.weight values\n" n " self_attn.o_proj.weight\n" \
	n " block_sparse_moe.gate.weight\n" n " block_sparse_moe.routed_expert_down_proj.weight\n" \
	n " block_sparse_moe.shared_experts.gate_proj.weight\n" \
	n " block_sparse_moe.shared_experts.up_proj.weight\n" \
	n " block_sparse_moe.shared_experts.down_proj.weight\n"
#define EXPERT(n, e) \
	n " block_sparse_moe.experts." e ".w1.weight_packed\n" \
	n " block_sparse_moe.experts." e ".w3.weight_packed\n" \
	n " block_sparse_moe.experts." e ".w2.weight_packed\n"
#define OUTPUT \
	"5 language_model.model.output_attn_res_norm.weight\n" \
	"5 language_model.model.output_attn_res_proj.weight\n" \
	"5 language_model.model.norm.weight\n"
#define HEAD "5 language_model.lm_head.weight\n"

static void check_list(const uint32_t *tiles, uint32_t from, uint32_t until, bool tell,
		       const char *want, const char *what)
{
	struct k3_buf got = K3_BUF_INIT;
	struct k3_route r = { .config = &model.config, .from = from, .until = until, .tiles = tiles,
			      .experts_layer = UINT32_MAX, .experts = 3 };

	r.expert = memcpy(k3_calloc(3, sizeof *r.expert), some_experts, sizeof some_experts);
	list(&r, tell, &got);
	if (!ok(!strcmp(got.data ? got.data : "", want), "%s", what))
		printf("# %s\n", got.data ? got.data : "");
	free(r.expert);
	k3_buf_free(&got);
}

static void test_walk(void)
{
	static char whole[8192];
	static const char *const part[] = { KDA_VECTORS("0") KDA_DENSE("0") KDA_DENSE("0") KDA_DENSE("0"),
		MLA_VECTORS("1") MLA_MOE("1") MLA_MOE("1") EXPERT("1", "1") EXPERT("1", "4")
		EXPERT("1", "9") "1 block_sparse_moe.routed_expert_up_proj.weight\n"
		"1 block_sparse_moe.routed_expert_up_proj.weight\n",
		MLA_VECTORS("4") MLA_MOE("4") EXPERT("4", "1") EXPERT("4", "4") EXPERT("4", "9")
		"4 block_sparse_moe.routed_expert_up_proj.weight\n" OUTPUT HEAD HEAD };

	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		strcat(whole, part[i]);
	check_list((uint32_t[]){ 3, 2, 0, 0, 1, 2 }, 0, 6, true, whole, "the order of a pass with tiles");
	check_list((uint32_t[]){ 1 }, 0, 1, true, KDA_VECTORS("0") KDA_DENSE("0"), "a dense layer");
	check_list((uint32_t[]){ 3 }, 5, 6, true, OUTPUT HEAD HEAD HEAD, "the head, three times");
	check_list((uint32_t[]){ 0, 0 }, 2, 4, true, "", "layers that nothing passes");
	check_list((uint32_t[]){ 1 }, 1, 2, false, MLA_VECTORS("1") MLA_MOE("1") "?",
		   "experts are waited for");
}

/* ---- pins ---- */

enum { BLOCKS = 1000, BLOCK = 60000 };

static bool holds(const struct k3_pins *p, uint64_t i)
{
	const unsigned char *at = k3_pins_find(p, i);

	for (uint64_t k = 0; at && k < BLOCK - i % 500; k += 97)
		if (at[k] != (unsigned char)(i + k))
			return false;
	return true;
}

/* A round: all blocks are asked for, and those that may stay are filled.  Returns how many there are. */
static unsigned round_of(struct k3_pins *p, bool *good)
{
	unsigned n = 0;

	for (uint64_t i = 0; i < BLOCKS; i++) {
		uint64_t bytes = BLOCK - i % 500;
		unsigned char *to = k3_pins_find(p, i) ? NULL : k3_pins_assign(p, i, bytes);

		*good &= !to || (!k3_pins_find(p, i) && !k3_pins_assign(p, i, bytes));
		for (uint64_t k = 0; to && k < bytes; k++)
			to[k] = (unsigned char)(i + k);
		if (to)
			k3_pins_filled(p, i);
	}
	for (uint64_t i = 0; i < BLOCKS; i++) {
		*good &= holds(p, i);
		n += k3_pins_find(p, i) != NULL;
	}
	return n;
}

/* Sanitizers have memory of their own for each byte. */
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

/* What the process has resident. */
static uint64_t resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long long pages = 0;

	if (!f || fscanf(f, "%*u %llu", &pages) != 1)
		exit(1);
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void test_pins(void)
{
	static const uint64_t limits[] = { 40 << 20, 20 << 20, 21 << 20, 60 << 20, 3 << 20, 0, 100000,
					   33 << 20, UINT64_MAX };
	uint64_t total = 0, most = 62 << 20, before;
	struct k3_pins *p;
	bool good = true, spread = true;

	for (uint64_t i = 0; i < BLOCKS; i++)
		total += BLOCK - i % 500;
	need(k3_pins_new(BLOCKS, total, most, &p, &err), &err);
	before = resident();
	for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
		uint64_t limit = limits[l] < most ? limits[l] : most;
		unsigned n;

		good = true;
		k3_pins_limit(p, limits[l]);
		for (uint64_t i = 0; i < BLOCKS; i++)
			good &= holds(p, i);
		ok(good, "limit %llu: what stays is whole", (unsigned long long)limits[l]);
		n = round_of(p, &good);
		ok(good && k3_pins_used(p) <= limit && (uint64_t)n * BLOCK <= limit + (uint64_t)n * 500,
		   "limit %llu: never more, each in a place of its own", (unsigned long long)limits[l]);
		ok(n == round_of(p, &good) && good, "and a second round changes nothing");
		if (!SANITIZED)
			ok(resident() <= before + limit + (1 << 20), "nor is more resident");
		if (limits[l] == UINT64_MAX)
			ok(n == BLOCKS, "all of them, if they fit");
	}
	k3_pins_free(p);
	/* half of them, in any tenth of the order about half */
	need(k3_pins_new(BLOCKS, total, total / 2, &p, &err), &err);
	round_of(p, &good);
	for (unsigned at = 0; at < BLOCKS; at += BLOCKS / 10) {
		unsigned n = 0;

		for (unsigned i = at; i < at + BLOCKS / 10; i++)
			n += k3_pins_find(p, i) != NULL;
		spread &= n > 40 && n < 60;
	}
	ok(spread, "half of the blocks are half of every tenth");
	k3_pins_free(p);
	need(k3_pins_new(BLOCKS, total, most, &p, &err), &err);
	ok(k3_pins_assign(p, 3, 500) && !k3_pins_find(p, 3), "a place that is not filled is not found");
	k3_pins_clean(p);
	ok(k3_pins_assign(p, 3, 500) && !k3_pins_find(p, 3), "and is given away anew after a failure");
	k3_pins_free(p);
	need(k3_pins_new(BLOCKS, total, 0, &p, &err), &err);
	ok(round_of(p, &good) == 0, "no memory, no pins");
	k3_pins_free(p);
}

/* ---- the reader ---- */

enum { STEPS = 1024, MOST_USERS = 16 };

static const uint32_t all_tiles[] = { 2, 1, 3, 1, 1, 2 };

struct trial {
	uint64_t block_rows, request;
	unsigned depth, users;
	unsigned kept;			/* of a hundred entries, so many are in memory */
	unsigned late;			/* microseconds that a user sometimes keeps what it has */
	unsigned stop;			/* steps after which users go away; 0: none */
	unsigned room;			/* for experts ahead */
	bool bare;			/* no layer has experts */
	bool wide;			/* there are more buffers than are needed */
	/* of a run */
	struct k3_source *source;
	struct k3_reader *reader;
	struct k3_route route;
	pthread_barrier_t gate;
	_Atomic uint64_t next[STEPS];	/* block of each step */
	_Atomic unsigned wrong, failed;
	struct k3_hoard *hoard;
	_Atomic uint64_t ahead, coming;	/* entries that were there, and that were on their way */
	uint64_t asked;			/* entries that find saw */
	bool out_of_order;
};

/* The bytes that an entry must have, out of the shards' tensors. */
static const unsigned char *expected(const struct k3_step *s, uint64_t i, uint64_t *bytes)
{
	uint64_t row = 0, rows, width;
	enum k3_role role = s->role;
	struct k3_tensor tensor;

	if (s->use) {
		k3_use_rows(&model.config, s->use, i, &row, &rows);
	} else if (i) {
		uint64_t n = s->cut.block_rows;

		row = (s->cut.blocks - i) * n;	/* the last ones first */
		rows = s->cut.rows - row < n ? s->cut.rows - row : n;
	} else {
		role++;
		rows = s->cut.rows;
	}
	need(k3_index_tensor(model.ix, role, s->section < model.config.layers ? s->section : 0,
			     s->expert, &tensor, &err), &err);
	width = tensor.bytes / tensor.rows;
	if (s->use && s->use->vector)
		rows = tensor.rows;
	*bytes = rows * width;
	return shard[tensor.shard] + tensor.offset + row * width;
}

static bool find(void *ctx, const struct k3_step *step, uint64_t i, struct k3_entry *e)
{
	static unsigned char somewhere;
	struct trial *t = ctx;
	bool coming = false;

	if (!step->use && t->hoard)
		e->data = k3_hoard_find(t->hoard, step, i, &coming);
	t->ahead += e->data != NULL;
	t->coming += coming;
	if (coming)
		return false;
	if (step->first + i != t->asked++)
		t->out_of_order = true;
	if ((step->first + i) * 2654435761u % 100 < t->kept) {
		e->data = expected(step, i, &(uint64_t){ 0 });
		e->read = false;
	} else if (i % 3 == 1) {
		e->keep = &somewhere;
	}
	return true;
}

static void look_at(struct trial *t, const struct k3_step *s, uint64_t i, unsigned rank)
{
	const unsigned char *want;
	struct k3_entry e;
	struct k3_err why;
	uint64_t bytes;

	if (k3_reader_get(t->reader, s->first + i, &e, &why)) {
		t->failed++;
		return;
	}
	want = expected(s, i, &bytes);
	t->wrong += e.bytes != bytes || memcmp(e.data, want, bytes) || e.read == (e.data == want);
	if (t->late && (s->first * 7 + i + rank) % 11 == 0)
		usleep(t->late);
	t->wrong += memcmp(e.data, want, bytes) != 0;
}

struct user {
	struct trial *t;
	unsigned rank;
};

static void use_step(struct trial *t, const struct k3_step *s, uint64_t number, unsigned rank)
{
	uint64_t blocks = s->use ? s->entries : s->entries - 1, i;

	if (s->use && s->use->vector && rank)
		return;
	while (!t->failed && (i = atomic_fetch_add(&t->next[number], 1)) < blocks) {
		if (!s->use)
			look_at(t, s, 0, rank);
		if (!t->failed)
			look_at(t, s, i + !s->use, rank);
		if (t->failed)
			return;
		k3_reader_release(t->reader, s->first + i + !s->use);
		if (!s->use)
			k3_reader_release(t->reader, s->first);
	}
}

/* Before it is known which experts there will be, the last of them are; twice, and for a while. */
static void guess(struct trial *t, uint32_t section)
{
	uint32_t needed = 1 + section % 3, n = 1 + section / 2 % needed;

	for (int i = 0; t->hoard && i < 2; i++) {
		k3_reader_lock(t->reader);
		for (uint32_t k = needed - n; k < needed; k++)
			need(k3_hoard_expect(t->hoard, section, some_experts[k], &err), &err);
		k3_reader_known(t->reader);
		k3_reader_unlock(t->reader);
		usleep(section % 2 ? 0 : 500);
	}
}

static void *use(void *arg)
{
	const struct user *u = arg;
	struct trial *t = u->t;
	struct k3_walk w;
	struct k3_step s;
	enum k3_walked found;
	uint64_t number = 0;

	k3_walk_begin(&w, &t->route);
	while ((found = k3_walk_next(&w, &s)) != K3_WALK_END) {
		if (found == K3_WALK_UNKNOWN) {
			pthread_barrier_wait(&t->gate);
			if (u->rank == 0) {
				guess(t, w.section);
				k3_reader_lock(t->reader);
				if (t->hoard)
					k3_hoard_stop(t->hoard);
				t->route.experts_layer = w.section;
				t->route.experts = t->bare ? 0 : 1 + w.section % 3;
				k3_reader_known(t->reader);
				k3_reader_unlock(t->reader);
			}
			pthread_barrier_wait(&t->gate);
			continue;
		}
		use_step(t, &s, number++, u->rank);
		if (t->stop && number == t->stop)
			break;
	}
	return NULL;
}

static void run_once(struct trial *t, unsigned stop)
{
	pthread_t thread[MOST_USERS];
	struct user user[MOST_USERS];

	t->stop = stop;
	t->asked = 0;
	t->route.experts_layer = UINT32_MAX;
	for (unsigned i = 0; i < STEPS; i++)
		t->next[i] = 0;
	if (t->hoard)
		k3_hoard_clear(t->hoard);
	k3_reader_begin(t->reader, &t->route);
	for (unsigned i = 0; i < t->users; i++) {
		user[i] = (struct user){ t, i };
		if (pthread_create(&thread[i], NULL, use, &user[i]))
			exit(1);
	}
	for (unsigned i = 0; i < t->users; i++)
		pthread_join(thread[i], NULL);
	k3_reader_end(t->reader);
}

static void trial_new(struct trial *t)
{
	struct k3_weights_options wo = { .workers = t->users, .block_rows = t->block_rows,
					 .request = t->request, .depth = t->depth };
	struct k3_reader_options ro = k3_weights_buffers(&model.config, &wo);

	if (t->wide) {
		ro.buffers += t->depth;
		ro.depth = t->depth;
	}
	t->route = (struct k3_route){ .config = &model.config, .block_rows = t->block_rows,
				      .until = 6, .tiles = all_tiles };
	t->route.expert = memcpy(k3_calloc(3, sizeof(uint32_t)), some_experts, sizeof some_experts);
	ro.find = find;
	ro.ctx = t;
	need(k3_source_new(model.ix, NULL, t->block_rows, &t->source, &err), &err);
	if (t->room) {
		uint64_t one = k3_hoard_least(&model.config), all = k3_hoard_all(&model.config);

		one += (t->room - 1) * (all - one) / (model.config.experts - 1);
		need(k3_hoard_new(&model.config, t->source, t->request, &t->hoard, &err), &err);
		need(k3_hoard_size(t->hoard, one, &err), &err);
	}
	ro.hoard = t->hoard;
	need(k3_reader_new(t->source, &ro, &t->reader, &err), &err);
	pthread_barrier_init(&t->gate, NULL, t->users);
}

static void trial_free(struct trial *t)
{
	k3_reader_free(t->reader);
	k3_hoard_free(t->hoard);
	k3_source_free(t->source);
	free(t->route.expert);
	pthread_barrier_destroy(&t->gate);
}

static uint64_t all_coming;

static void check_trial(struct trial t)
{
	uint64_t whole;

	alarm(60);
	trial_new(&t);
	run_once(&t, 0);
	whole = t.asked;
	run_once(&t, 9);
	run_once(&t, 70);
	run_once(&t, 0);
	ok(!t.wrong && !t.failed && !t.out_of_order && whole > 300 && t.asked == whole &&
	   (t.kept == 100 || !t.room == !t.ahead),
	   "%llu entries: blocks of %llu rows, requests of %llu, %u at a time, %u users, %u in 100 in memory, "
	   "room for %u experts", (unsigned long long)whole, (unsigned long long)t.block_rows,
	   (unsigned long long)t.request, t.depth, t.users, t.kept, t.room);
	all_coming += t.coming;
	trial_free(&t);
}

static void test_reader(void)
{
	static const uint64_t rows[] = { 0, 1, 7 }, request[] = { 4096, 8192, 65536, 1 << 20 };
	static const unsigned depth[] = { 1, 2, 8 };

	for (int b = 0; b < 3; b++)
		for (int q = 0; q < 4; q++)
			for (int d = 0; d < 3; d++)
				check_trial((struct trial){ .block_rows = rows[b], .request = request[q],
					    .depth = depth[d], .users = 1 + (unsigned)(b + q + d) % 3,
					    .wide = q % 2 });
	for (unsigned kept = 30; kept <= 100; kept += 35)
		check_trial((struct trial){ .block_rows = 7, .request = 8192, .depth = 4, .users = 3,
					    .kept = kept });
	check_trial((struct trial){ .request = 8192, .depth = 4, .users = MOST_USERS });
	check_trial((struct trial){ .request = 4096, .depth = 3, .users = 5, .late = 3000 });
	check_trial((struct trial){ .request = 4096, .depth = 8, .users = 2, .late = 20000, .kept = 50,
				    .wide = true });
	for (int b = 0; b < 3; b++)
		for (unsigned room = 1; room <= 3; room++)
			for (int d = 0; d < 3; d++)
				check_trial((struct trial){ .block_rows = rows[b], .request = request[d],
					    .depth = depth[d], .users = room + 1, .kept = d ? 0 : 40,
					    .room = room });
	ok(all_coming, "some of the experts were on their way when their turn came");
}

/* The pages that bytes lie in, from the beginning of one tensor of an expert to the end of another. */
static uint64_t pages(uint32_t layer, uint32_t expert, enum k3_role first, enum k3_role last)
{
	struct k3_tensor a, b;

	need(k3_index_tensor(model.ix, first, layer, expert, &a, &err), &err);
	need(k3_index_tensor(model.ix, last, layer, expert, &b, &err), &err);
	return k3_direct_up(b.offset + b.bytes) - k3_direct_down(a.offset);
}

/* What a pass reads. */
static uint64_t bytes_read(struct trial *t, bool bare)
{
	struct k3_reader_counts before, after;

	t->bare = bare;
	k3_reader_count(t->reader, &before);
	run_once(t, 0);
	k3_reader_count(t->reader, &after);
	ok(!t->wrong && !t->failed, "two layers %s experts", bare ? "without" : "with one and two");
	return after.bytes - before.bytes;
}

/* On the disk w1 comes first, then w2, then w3, and behind each its scales; w3 is used before w2. */
static void test_requests(void)
{
	struct trial t = { .block_rows = 7, .request = 1 << 20, .depth = 3, .users = 2 };
	uint64_t want = 0;

	trial_new(&t);
	t.route.from = 3;
	t.route.until = 5;
	t.route.tiles = (const uint32_t[]){ 1, 1 };
	for (uint32_t layer = 3; layer < 5; layer++)
		for (uint32_t i = 0; i < 1 + layer % 3; i++)
			want += pages(layer, some_experts[i], K3_W1, K3_W1 + 1) +
				pages(layer, some_experts[i], K3_W2, K3_W3 + 1);
	ok(bytes_read(&t, false) - bytes_read(&t, true) == want,
	   "an expert takes two requests, each of neighbours on the disk: %llu bytes", (unsigned long long)want);
	trial_free(&t);
}

static void test_ends(void)
{
	struct trial t = { .request = 8192, .depth = 8, .users = 2 };
	struct k3_entry e;

	alarm(60);
	trial_new(&t);
	for (int i = 0; i < 300; i++) {
		t.asked = 0;
		t.route.experts_layer = UINT32_MAX;
		k3_reader_begin(t.reader, &t.route);
		if (i % 3 == 1)
			need(k3_reader_get(t.reader, (uint64_t)i % 4, &e, &err), &err);
		if (i % 7 == 2)
			usleep(200);
		k3_reader_end(t.reader);
	}
	ok(!t.out_of_order, "ended while reads are on their way, three hundred times");
	run_once(&t, 0);
	ok(!t.wrong && !t.failed, "and then all of it");
	t.route.until = 1;
	run_once(&t, 0);
	t.asked = 0;
	t.kept = 100;	/* so that nothing before it waits to be used */
	k3_reader_begin(t.reader, &t.route);
	ok(k3_reader_get(t.reader, 1u << 20, &e, &err) == K3_EARG, "an entry behind the end is an error");
	k3_reader_end(t.reader);
	trial_free(&t);
}

static void test_failure(void)
{
	for (unsigned users = 1; users <= 6; users++)
		for (int s = 0; s < 2; s++) {
			struct trial t = { .request = 8192, .depth = 4, .users = users,
					   .room = users % 2 ? 0 : 3 };
			struct k3_place whole;
			struct stat st;

			alarm(60);
			trial_new(&t);
			/* open before it is cut */
			need(k3_source_tensor(t.source, s ? K3_OUT : K3_EMBED, s ? 4 : 0, 0, &whole, &err),
			     &err);
			if (strcmp(whole.file->path, model.shard[s]) || stat(model.shard[s], &st) ||
			    truncate(model.shard[s], st.st_size / 2))
				exit(1);
			run_once(&t, 0);
			ok(t.failed && !t.wrong, "a file that ends too early, %u users, shard %d, room for %u experts",
			   users, s, t.room);
			trial_free(&t);
			/* what was cut off is written again */
			if (!shard_write(model.shard[s], shard[s], (size_t)st.st_size, 0) ||
			    utimensat(AT_FDCWD, model.shard[s],
				      (struct timespec[]){ st.st_atim, st.st_mtim }, 0))
				exit(1);
		}
}

int main(void)
{
	signal(SIGALRM, on_alarm);
	checkpoint_new(&model);
	for (int i = 0; i < 2; i++) {
		struct stat st;
		int fd = open(model.shard[i], O_RDONLY);

		if (fd < 0 || fstat(fd, &st))
			return 1;
		shard[i] = malloc((size_t)st.st_size);
		if (!shard[i] || read(fd, shard[i], (size_t)st.st_size) != st.st_size)
			return 1;
		close(fd);
	}
	test_walk();
	test_pins();
	test_requests();
	test_ends();
	test_failure();
	test_reader();
	free(shard[0]);
	free(shard[1]);
	checkpoint_free(&model);
	return tap_done();
}
