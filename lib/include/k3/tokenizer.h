/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/tokenizer.h - text to ids and back.
 *
 * Text is any bytes: they are taken as UTF-8 where they are UTF-8, and every byte
 * comes back when the ids are decoded.  Nothing is normalised, and no id is added.
 * An open tokenizer is constant: any number of threads may use it.
 */
#ifndef K3_TOKENIZER_H
#define K3_TOKENIZER_H

#include <k3/err.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers that grow; K3_IDS_INIT is the empty list. */
struct k3_ids {
	uint32_t *id;		/* owned */
	size_t count, capacity;
};

#define K3_IDS_INIT { NULL, 0, 0 }

/* Appends an id.  Errors: K3_ENOMEM. */
K3_API K3_NODISCARD int k3_ids_add(struct k3_ids *ids, uint32_t id, struct k3_err *err);
K3_API void k3_ids_free(struct k3_ids *ids);

struct k3_tokenizer;

/*
 * Opens the tokenizer of a checkpoint's directory: reads tiktoken.model and
 * tokenizer_config.json in it, and nothing else.  The caller ends *out with
 * k3_tokenizer_close.  Errors: K3_EIO, K3_EDATA naming the file and what is wrong in it,
 * K3_ENOMEM.
 */
K3_API K3_NODISCARD int k3_tokenizer_open(const char *directory, struct k3_tokenizer **out,
					  struct k3_err *err);
K3_API void k3_tokenizer_close(struct k3_tokenizer *t);

/* The number of ids, 256 special ones included: ids are less than this. */
K3_API uint32_t k3_tokenizer_vocab(const struct k3_tokenizer *t);

/*
 * The bytes of an id, borrowed, and their number in *n; of a special id, its
 * spelling.  NULL if there is no such id.  They need not be whole characters.
 */
K3_API const char *k3_tokenizer_bytes(const struct k3_tokenizer *t, uint32_t id, size_t *n);

/*
 * Appends the ids of n bytes of text.  With special, the spellings of special ids
 * in the text become these ids; without, they are text like any other.
 *
 * ends, unless NULL, gets one number for each piece of the text: the number of ids
 * in *ids behind the piece's last.  Errors: K3_EDATA for 4 GiB and more, K3_ENOMEM;
 * after one, a part of the ids may have been appended.
 */
K3_API K3_NODISCARD int k3_tokenizer_encode(const struct k3_tokenizer *t, const void *text,
					    size_t n, bool special, struct k3_ids *ids,
					    struct k3_ids *ends, struct k3_err *err);

#ifdef __cplusplus
}
#endif
#endif
