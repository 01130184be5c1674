/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader.c - a queue of entries in the order of use, and buffers that their bytes lie in.
 *
 * One lock guards it all, but for the count of an entry's users.  Requests are put together one at
 * a time, in the order of use.  Whoever holds an entry gives it back without waiting for a later one; only the scales of an
 * expert's matrix are held until its last block is done.  So with a buffer for these, one
 * for each worker and one more there is always one that becomes free.
 *
 * The buffer that became free last is the next one to be read into.  Where a disk is as fast as memory, what
 * counts is how much memory the bytes go through, and so it is no more than the moment needs.
 */
#include "engine/reader.h"
#include "engine/pace.h"
#include "sys/small.h"

#include <k3/buf.h>

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Entries in the queue.  STACK: a reader's thread calls little but pread. */
enum { QUEUE = 1024, STACK = 128 << 10 };

/* A full queue is read on for when half of it is free: the scales that are held as long as their blocks must lie in the other half. */
_Static_assert(K3_EXPERT_BLOCKS < QUEUE / 2, "the queue is too short for an expert's matrix");

enum state { FREE, READING, HERE, BROKEN };

/* A buffer, and what was read into it. */
struct request {
	unsigned char *data;
	struct k3_direct *file;
	uint64_t begin, end;		/* of the bytes in the file that entries have */
	uint64_t first;			/* number of its first entry .. */
	uint32_t entries, users;	/* .. of so many, of which users are in use */
};

struct slot {
	enum state state;
	atomic_uint users;		/* that have not yet given it back */
	struct request *request;	/* that it came by; NULL if it was in memory */
	uint64_t offset;		/* in the file */
	struct k3_entry entry;
};

struct k3_reader {
	struct k3_source *source;
	struct k3_reader_options o;
	unsigned char *memory;		/* of all buffers */
	pthread_t *thread;
	unsigned threads;		/* that were started */

	pthread_mutex_t lock;
	pthread_cond_t ready;		/* for users: an entry has come */
	pthread_cond_t work;		/* for readers: there is room, or more is known */
	pthread_cond_t quiet;		/* the last read has ended */
	bool quit, active, ended;
	bool wakes_users, wakes_reader;	/* once the lock is left */
	unsigned reading;		/* requests on their way */
	struct k3_pace pace;
	bool starved;			/* since the last read ended none was on its way, and there was none to begin */
	uint64_t since;			/* when the last of them came, or the first was made; 0: there are none */
	int status;			/* of the first read that failed */
	struct k3_err err;

	struct k3_walk walk;
	struct k3_step step;		/* whose entry number at is the next one */
	uint64_t at;
	bool looked;			/* next is filled in */
	bool full;			/* it finds no place in the queue */
	struct k3_entry next;
	struct k3_place place;
	struct request pending;		/* the one that is being put together */

	struct slot slot[QUEUE];
	bool awaited[QUEUE];		/* somebody sleeps until that slot's entry is here */
	uint64_t published, released;	/* numbers of entries */
	struct request *request;	/* one for each buffer */
	struct request **idle;		/* a stack of those that are free */
	atomic_uint idles;		/* changes with the lock held */

	uint64_t bytes;
	uint64_t waited;		/* nanoseconds */
};

uint64_t k3_reader_buffer(uint64_t request, uint64_t entry)
{
	/* an entry may begin and end in the middle of a page */
	return k3_direct_up(request > entry ? request : entry) + K3_DIRECT;
}

unsigned k3_reader_least(unsigned workers)
{
	return workers + 2;
}

uint64_t k3_reader_memory(const struct k3_reader_options *o)
{
	return o->buffers * o->buffer;
}

/* ---- the lock, and who is woken ---- */

/*
 * Leaves the lock after what may have set a flag to wake somebody.  He is woken when the lock is free again: threads
 * that wake only to wait for it cost a processor as much as the products of a block.
 */
static void leave(struct k3_reader *r)
{
	bool users = r->wakes_users, reader = r->wakes_reader;

	r->wakes_users = r->wakes_reader = false;
	pthread_mutex_unlock(&r->lock);
	if (users)
		pthread_cond_broadcast(&r->ready);
	if (reader)
		pthread_cond_signal(&r->work);
}

/* Entries first .. first + n - 1 are here, or never will be: wakes those who wait for them. */
static void announce(struct k3_reader *r, uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++) {
		r->wakes_users |= r->awaited[i % QUEUE];
		r->awaited[i % QUEUE] = false;
	}
}

static bool may_read(const struct k3_reader *r)
{
	return r->reading < r->pace.depth;
}

/*
 * There may be something to read: wakes somebody who reads, and whoever then finds something wakes the next.
 * Nobody is woken who may not read: whoever's read ends looks for another one.
 */
static void wake_reader(struct k3_reader *r)
{
	r->wakes_reader |= may_read(r);
}

/* ---- putting requests together ---- */

/* Looks at the next entry; K3_WALK_UNKNOWN and _END tell that there is none, or none yet. */
static enum k3_walked look(struct k3_reader *r)
{
	enum k3_walked found = K3_WALK_STEP;

	if (r->looked)
		return found;
	if (r->at == r->step.entries) {
		found = k3_walk_next(&r->walk, &r->step);
		if (found != K3_WALK_STEP)
			return found;
		r->at = 0;
	}
	r->status = k3_source_place(r->source, &r->step, r->at, &r->place, &r->err);
	if (r->status)
		return K3_WALK_END;
	r->next = (struct k3_entry){ .bytes = r->place.bytes, .read = true };
	if (!r->o.find(r->o.ctx, &r->step, r->at, &r->next))
		return K3_WALK_UNKNOWN;
	r->looked = true;
	return found;
}

/* Puts the entry that was looked at into the queue. */
static void enqueue(struct k3_reader *r, uint64_t number, enum state state)
{
	bool scales = !r->step.use && r->at == 0;

	r->slot[number % QUEUE] = (struct slot){
		.state = state, .users = scales ? (uint32_t)r->step.entries - 1 : 1,
		.offset = r->place.offset, .entry = r->next,
	};
	r->looked = false;
	r->at++;
}

/* What is read for a request: whole pages. */
static uint64_t offset(const struct request *q)
{
	return k3_direct_down(q->begin);
}

static uint64_t size(const struct request *q)
{
	return k3_direct_up(q->end) - offset(q);
}

/* The request with the entry that was looked at, which is its first one or lies beside it. */
static struct request joined(const struct k3_reader *r, const struct request *q)
{
	uint64_t begin = r->place.offset, end = begin + r->place.bytes;
	struct request out = *q;

	out.file = r->place.file;
	out.begin = q->entries ? k3_min(q->begin, begin) : begin;
	out.end = k3_max(q->end, end);
	out.entries++;
	return out;
}

/* Does the entry that was looked at continue a request that is not empty, behind its end or in front of it? */
static bool continues(const struct k3_reader *r, const struct request *q)
{
	uint64_t begin = r->place.offset, end = begin + r->place.bytes;
	struct request both = joined(r, q);

	return r->place.file == q->file && size(&both) <= r->o.request &&
	       ((begin >= q->end && begin - q->end < K3_DIRECT) ||
		(end <= q->begin && q->begin - end < K3_DIRECT));
}

/* Adds it. */
static void extend(struct k3_reader *r, struct request *q, uint64_t number)
{
	*q = joined(r, q);
	if (q->entries == 1)
		q->first = number;
	enqueue(r, number, READING);
}

/*
 * Fills q with entries from number published on, which become visible with it.  False if there
 * is nothing to read for now; entries that are in memory go into the queue at once.
 */
static bool gather(struct k3_reader *r, struct request *q)
{
	for (;;) {
		uint64_t number = r->published + q->entries;

		r->full = number - r->released == QUEUE;
		if (r->full || look(r) != K3_WALK_STEP)
			return q->entries;
		if (q->entries && (r->next.data || !continues(r, q)))
			return true;
		if (!r->next.data) {
			extend(r, q, number);
			continue;
		}
		enqueue(r, number, HERE);
		r->published++;
		announce(r, number, 1);
	}
}

static bool stopped(const struct k3_reader *r)
{
	return !r->active || r->status;
}

/* Where the bytes of an entry lie in the buffer of its request. */
static unsigned char *bytes_of(const struct slot *s)
{
	return s->request->data + (s->offset - offset(s->request));
}

/* Gives the request its buffer, and users its entries. */
static struct request *publish(struct k3_reader *r)
{
	struct request *out = r->idle[--r->idles];
	unsigned char *data = out->data;

	*out = r->pending;
	r->pending = (struct request){ 0 };
	out->data = data;
	out->users = out->entries;
	for (uint64_t i = 0; i < out->entries; i++) {
		struct slot *s = &r->slot[(out->first + i) % QUEUE];

		s->request = out;
		s->entry.data = bytes_of(s);
	}
	r->published += out->entries;
	return out;
}

/* The next request, or NULL: there is none for now, or no room for it. */
static struct request *next_request(struct k3_reader *r)
{
	if (!r->active || r->ended)
		return NULL;
	if (!r->status && gather(r, &r->pending) && !r->status)
		return r->idles && may_read(r) ? publish(r) : NULL;
	if (r->status || look(r) == K3_WALK_END)
		r->ended = r->wakes_users = true;
	return NULL;
}

/* ---- reading ---- */

/* A read has ended. */
static void account(struct k3_reader *r, uint64_t size, int rc, const struct k3_err *err)
{
	uint64_t now = k3_nanoseconds();

	k3_pace_account(&r->pace, size, now - r->since, r->starved);
	r->starved = false;
	r->since = now;
	r->reading--;
	r->bytes += rc ? 0 : size;
	if (rc && !r->status) {
		r->status = rc;
		r->err = *err;
		r->wakes_users = true;
	}
	if (!r->reading)
		pthread_cond_broadcast(&r->quiet);
}

/* With the lock held, which is left for the read itself. */
static void read_request(struct k3_reader *r, struct request *q)
{
	struct k3_err err;
	int rc;

	leave(r);
	rc = k3_direct_read(q->file, q->data, size(q), offset(q), q->end - offset(q), &err);
	pthread_mutex_lock(&r->lock);
	for (uint64_t i = 0; i < q->entries; i++)
		r->slot[(q->first + i) % QUEUE].state = rc ? BROKEN : HERE;
	announce(r, q->first, q->entries);
	account(r, size(q), rc, &err);
}

static void read_ahead(struct k3_reader *r, const struct k3_hoard_read *h)
{
	struct k3_err err;
	int rc;

	leave(r);
	rc = k3_direct_read(h->file, h->to, h->size, h->offset, h->need, &err);
	pthread_mutex_lock(&r->lock);
	if (!rc)
		k3_hoard_arrived(r->o.hoard, h);
	account(r, h->size, rc, &err);
}

/* The walk's next request, or else the hoard's; false if there is neither. */
static bool read_one(struct k3_reader *r)
{
	struct request *q = next_request(r);
	struct k3_hoard_read h;

	if (!q && (stopped(r) || !may_read(r) || !r->o.hoard || !k3_hoard_next(r->o.hoard, &h)))
		return false;
	if (!r->since)
		r->since = k3_nanoseconds();
	r->reading++;
	wake_reader(r);
	if (q)
		read_request(r, q);
	else
		read_ahead(r, &h);
	return true;
}

/* There is nothing to read. */
static void sleep_until_work(struct k3_reader *r)
{
	if (!r->reading) {
		r->since = 0;
		r->starved = true;
	}
	/* entries in memory may have come, or the end */
	if (r->wakes_users)
		pthread_cond_broadcast(&r->ready);
	r->wakes_users = false;
	pthread_cond_wait(&r->work, &r->lock);
}

static void *read_requests(void *arg)
{
	struct k3_reader *r = arg;

	pthread_mutex_lock(&r->lock);
	while (!r->quit)
		if (!read_one(r))
			sleep_until_work(r);
	leave(r);
	return NULL;
}

/* ---- making one ---- */

static int start(struct k3_reader *r, struct k3_err *err)
{
	pthread_attr_t attr;
	int e = pthread_attr_init(&attr);

	if (!e)
		e = pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN > STACK ? PTHREAD_STACK_MIN
									       : STACK);
	while (!e && r->threads < r->o.depth) {
		e = pthread_create(&r->thread[r->threads], &attr, read_requests, r);
		r->threads += !e;
	}
	pthread_attr_destroy(&attr);
	return e ? k3_fail(err, K3_EIO, "cannot start a thread that reads: %s", strerror(e)) : 0;
}

int k3_reader_new(struct k3_source *source, const struct k3_reader_options *o,
		  struct k3_reader **out, struct k3_err *err)
{
	struct k3_reader *r = calloc(1, sizeof *r);
	int rc;

	*out = NULL;
	if (!r)
		return k3_fail_nomem(err);
	r->source = source;
	r->o = *o;
	k3_pace_init(&r->pace, o->depth);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->ready, NULL);
	pthread_cond_init(&r->work, NULL);
	pthread_cond_init(&r->quiet, NULL);
	r->memory = k3_huge_new(k3_reader_memory(o));
	r->thread = k3_calloc(o->depth, sizeof *r->thread);
	r->request = k3_calloc(o->buffers, sizeof *r->request);
	r->idle = k3_calloc(o->buffers, sizeof(struct request *));
	for (unsigned i = 0; r->memory && r->request && i < o->buffers; i++)
		r->request[i].data = r->memory + i * o->buffer;
	rc = r->memory && r->thread && r->request && r->idle ? start(r, err) : k3_fail_nomem(err);
	if (rc)
		k3_reader_free(r);
	else
		*out = r;
	return rc;
}

void k3_reader_free(struct k3_reader *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->quit = true;
	r->active = false;
	pthread_cond_broadcast(&r->work);
	pthread_mutex_unlock(&r->lock);
	for (unsigned i = 0; i < r->threads; i++)
		pthread_join(r->thread[i], NULL);
	k3_huge_free(r->memory, k3_reader_memory(&r->o));
	pthread_cond_destroy(&r->quiet);
	pthread_cond_destroy(&r->work);
	pthread_cond_destroy(&r->ready);
	pthread_mutex_destroy(&r->lock);
	free(r->thread);
	free(r->request);
	free(r->idle);
	free(r);
}

void k3_reader_begin(struct k3_reader *r, const struct k3_route *route)
{
	pthread_mutex_lock(&r->lock);
	k3_walk_begin(&r->walk, route);
	r->step = (struct k3_step){ 0 };
	r->pending = (struct request){ 0 };
	r->at = r->published = r->released = 0;
	memset(r->awaited, 0, sizeof r->awaited);
	for (r->idles = 0; r->idles < r->o.buffers; r->idles++)
		r->idle[r->idles] = &r->request[r->idles];
	r->looked = r->ended = false;
	r->status = 0;
	r->active = true;
	pthread_cond_broadcast(&r->work);
	pthread_mutex_unlock(&r->lock);
}

void k3_reader_end(struct k3_reader *r)
{
	pthread_mutex_lock(&r->lock);
	r->active = false;
	while (r->reading)
		pthread_cond_wait(&r->quiet, &r->lock);
	pthread_mutex_unlock(&r->lock);
}

void k3_reader_lock(struct k3_reader *r)
{
	pthread_mutex_lock(&r->lock);
}

void k3_reader_unlock(struct k3_reader *r)
{
	leave(r);
}

void k3_reader_known(struct k3_reader *r)
{
	wake_reader(r);
}

/* ---- for users ---- */

/* 1 if entry n is here, 0 if it may still come, or a failure. */
static int arrived(struct k3_reader *r, uint64_t n, struct k3_err *err)
{
	const struct slot *s = &r->slot[n % QUEUE];

	if (n < r->published && s->state == HERE)
		return 1;
	if (n < r->published && s->state == READING)
		return 0;
	if (r->status) {
		*err = r->err;
		return r->status;
	}
	if (r->ended)
		return k3_fail(err, K3_EARG, "block %" PRIu64 " was asked for, which is not on the way",
			       n);
	return 0;
}

int k3_reader_get(struct k3_reader *r, uint64_t n, struct k3_entry *out, struct k3_err *err)
{
	uint64_t since = 0;
	int rc;

	pthread_mutex_lock(&r->lock);
	while (!(rc = arrived(r, n, err))) {
		since = since ? since : k3_nanoseconds();
		r->awaited[n % QUEUE] = true;
		pthread_cond_wait(&r->ready, &r->lock);
	}
	if (since)
		r->waited += k3_nanoseconds() - since;
	if (rc > 0)
		*out = r->slot[n % QUEUE].entry;
	pthread_mutex_unlock(&r->lock);
	return rc > 0 ? 0 : rc;
}

/* Nobody uses the entry any more. */
static void give_back(struct k3_reader *r, struct slot *s)
{
	struct request *q = s->request;

	s->state = FREE;
	if (q && !--q->users) {
		r->idle[r->idles++] = q;
		wake_reader(r);
	}
	while (r->released < r->published && r->slot[r->released % QUEUE].state == FREE)
		r->released++;
	/* nobody is woken for a few entries in memory: that would cost more than they do */
	if (r->full && r->published - r->released < QUEUE / 2)
		wake_reader(r);
}

void k3_reader_release(struct k3_reader *r, uint64_t n)
{
	struct slot *s = &r->slot[n % QUEUE];

	if (atomic_fetch_sub(&s->users, 1) > 1)
		return;
	/* while another buffer is free nobody waits for this one */
	if (s->request && r->idles)
		k3_direct_used(bytes_of(s), s->entry.bytes);
	pthread_mutex_lock(&r->lock);
	give_back(r, s);
	leave(r);
}

void k3_reader_count(struct k3_reader *r, struct k3_reader_counts *out)
{
	pthread_mutex_lock(&r->lock);
	*out = (struct k3_reader_counts){ r->bytes, (double)r->waited * 1e-9 };
	pthread_mutex_unlock(&r->lock);
}
