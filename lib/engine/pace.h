/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/pace.h - how many requests at a time a disk should get, found out while it reads.
 *
 * A disk that answers late wants many requests, so that it never has none; one that answers at once is faster
 * with few, whose memory stays in a processor's cache.  The same disk may be the one in this minute and the other
 * in the next.  So every few gigabytes a depth is compared with the next steps above and below, in turns.
 */
#ifndef K3_ENGINE_PACE_H
#define K3_ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct k3_pace {
	unsigned depth;			/* requests at a time, from now on */
	unsigned most;
	unsigned usual, other;		/* steps: what it is as a rule, and what is compared with that */
	unsigned last;			/* the step to the most */
	bool up;			/* the next comparison is with more */
	bool rests;			/* there is none now */
	unsigned failed;		/* neighbours that were not better, since a rest or a change */
	unsigned turn;			/* of a round of the comparison */
	unsigned unsettled;		/* requests that may be of the turn before */
	uint64_t requests, bytes, nanoseconds;	/* of the turn, or the rest */
	uint64_t starved;		/* requests of it */
	uint64_t typical;		/* nanoseconds of a request, in the turn or rest before; 0: not known, nothing stalls */
	unsigned alert;			/* requests within which another stall is not by accident */
	unsigned spoiled;		/* times that a stall has ended the turn, since one was completed */
	double pace[2];			/* nanoseconds a byte, summed over the turns of usual and other in a round */
	unsigned rounds;
	double sum, squares;		/* over them, of the logarithm of the other's pace over the usual one's */
};

/* most: at least 1. */
void k3_pace_init(struct k3_pace *p, unsigned most);

/*
 * So many bytes have come, after so many nanoseconds in which there was something to read; starved: after
 * a while without anything.  May change depth.
 */
void k3_pace_account(struct k3_pace *p, uint64_t bytes, uint64_t nanoseconds, bool starved);

#endif
