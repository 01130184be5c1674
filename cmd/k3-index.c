/* SPDX-License-Identifier: Apache-2.0 */
/* k3-index.c - makes the index of a checkpoint, reports, lists and verifies. */
#include "cli.h"

#include <k3/buf.h>
#include <k3/index.h>

#include <fnmatch.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static const char usage_text[] =
	"usage: k3-index [-j] [-o FILE] [--sum] [MODEL]\n"
	"       k3-index -l [-m MODEL] [GLOB]\n"
	"       k3-index --verify [MODEL]\n"
	"Makes the index of a checkpoint and says what is in it.  MODEL is its directory or\n"
	"an index; without it, -m MODEL or $K3_MODEL.\n"
	"\n"
	"  -m, --model MODEL  the checkpoint\n"
	"  -o, --output FILE  write the index here\n"
	"  -j, --json         report as JSON\n"
	"      --sum          read experts and embedding and add their checksums to the index\n"
	"  -l, --list         list the tensors, or those that GLOB matches\n"
	"      --verify       read them and compare the checksums\n"
	"  -h, --help         this text\n"
	"  -V, --version      the version\n";

struct options {
	const char *model, *output, *glob;
	bool json, sum, list, verify;
};

/* What the report needs, all of it counted before a line is printed. */
struct report {
	const struct k3_index *ix;
	struct k3_census census;
	struct k3_share resident, text;
	bool embedding, output;		/* that is there */
	struct k3_buf runnable;		/* "0:12 13:93" */
	struct k3_buf runnable_json;	/* [[0,12],[13,93]] */
	struct k3_buf layers_json;
};

static void join(struct k3_share *s, const struct k3_share *part)
{
	s->tensors += part->tensors;
	s->parameters += part->parameters;
	s->bytes += part->bytes;
}

static bool there(const struct k3_index *ix, enum k3_role role)
{
	struct k3_tensor t;

	return !k3_index_tensor(ix, role, 0, 0, &t, NULL);
}

/* Adds the layers first to end - 1, which can run. */
static void add_range(struct report *r, uint32_t first, uint32_t end)
{
	k3_buf_printf(&r->runnable, "%s%" PRIu32 ":%" PRIu32, r->runnable.len ? " " : "", first,
		      end);
	k3_buf_printf(&r->runnable_json, "%s[%" PRIu32 ",%" PRIu32 "]",
		      r->runnable_json.len ? "," : "", first, end);
}

static void collect_layers(struct report *r)
{
	const struct k3_config *c = k3_index_config(r->ix);
	struct k3_layer_census layer;
	uint32_t first = 0;

	for (uint32_t i = 0; i < c->layers; i++) {
		k3_index_layer(r->ix, i, &layer);
		k3_buf_printf(&r->layers_json, "%s{\"layer\":%" PRIu32 ",\"kind\":\"%s\",\"mlp\":"
			      "\"%s\",\"trunk_bytes\":%" PRIu64 ",\"expert_bytes\":%" PRIu64
			      ",\"missing_tensors\":%" PRIu64 "}", i ? "," : "", i,
			      c->kind[i] == K3_MLA ? "mla" : "kda",
			      k3_config_is_moe(c, i) ? "moe" : "dense", layer.trunk.bytes,
			      layer.experts.bytes, layer.missing.tensors);
		if (layer.missing.tensors) {
			if (first < i)
				add_range(r, first, i);
			first = i + 1;
		}
	}
	if (first < c->layers)
		add_range(r, first, c->layers);
}

static void collect(struct report *r, const struct k3_index *ix)
{
	*r = (struct report){ .ix = ix };
	k3_index_census(ix, &r->census);
	join(&r->resident, &r->census.trunk);
	join(&r->resident, &r->census.embedding);
	join(&r->resident, &r->census.head);
	join(&r->resident, &r->census.output);
	r->text = r->resident;
	join(&r->text, &r->census.experts);
	r->embedding = there(ix, K3_EMBED);
	r->output = there(ix, K3_HEAD) && there(ix, K3_FINAL_NORM) && there(ix, K3_OUT_MIX_NORM) &&
		    there(ix, K3_OUT_MIX_PROJ);
	collect_layers(r);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void print_fingerprint(const struct k3_index *ix)
{
	for (int i = 0; i < 16; i++)
		printf("%02x", k3_index_fingerprint(ix)[i]);
}

static void print_row(const char *name, const struct k3_share *s)
{
	printf("  %-10s %10" PRIu64 " %16" PRIu64 " %16" PRIu64 "\n", name, s->tensors,
	       s->parameters, s->bytes);
}

static void report_text(const struct report *r)
{
	const struct k3_config *c = k3_index_config(r->ix);
	const struct k3_census *n = &r->census;

	printf("model        %s\nindex        %s\nfingerprint  ", k3_index_directory(r->ix),
	       k3_index_file(r->ix));
	print_fingerprint(r->ix);
	printf("\nlayers       %" PRIu32 ": %" PRIu32 " KDA and %" PRIu32 " MLA; %" PRIu32
	       " dense and %" PRIu32 " with experts\n", c->layers, n->kda_layers, n->mla_layers,
	       n->dense_layers, n->moe_layers);
	printf("experts      %" PRIu32 " a layer, %" PRIu32 " for each token, of %" PRIu64
	       " bytes%s\n", c->experts, c->chosen, n->expert.bytes,
	       k3_index_has_sums(r->ix) ? ", with sums" : "");
	printf("\n  %-10s %10s %16s %16s\n", "", "tensors", "parameters", "bytes");
	print_row("trunk", &n->trunk);
	print_row("embedding", &n->embedding);
	print_row("head", &n->head);
	print_row("output", &n->output);
	print_row("resident", &r->resident);
	print_row("experts", &n->experts);
	print_row("text", &r->text);
	printf("  %-10s %10" PRIu64 " %16s %16" PRIu64 "\n", "vision", n->vision_tensors, "-",
	       n->vision_bytes);
	if (n->missing.tensors)
		print_row("missing", &n->missing);
	printf("\nshards       %" PRIu32, k3_index_shards(r->ix));
	if (n->missing_shards)
		printf(", %" PRIu32 " of them missing", n->missing_shards);
	putchar('\n');
	for (uint32_t i = 0; i < k3_index_shards(r->ix); i++)
		if (k3_index_shard_missing(r->ix, i))
			printf("missing      %s\n", base_name(k3_index_shard_path(r->ix, i)));
	printf("can run      %slayers %s%s\n", r->embedding ? "embedding, " : "",
	       r->runnable.len ? r->runnable.data : "none", r->output ? ", output and head" : "");
}

static void json_string(const char *name, const char *value)
{
	struct k3_buf b = K3_BUF_INIT;

	k3_buf_json(&b, value, strlen(value));
	printf("\"%s\":%s,", name, b.data ? b.data : "null");
	k3_buf_free(&b);
}

static void json_share(const char *name, const struct k3_share *s)
{
	printf("\"%s\":{\"tensors\":%" PRIu64 ",\"parameters\":%" PRIu64 ",\"bytes\":%" PRIu64 "},",
	       name, s->tensors, s->parameters, s->bytes);
}

/* What one token needs: everything but the embedding, and of the experts the chosen ones. */
static void json_token(const struct report *r)
{
	const struct k3_census *n = &r->census;
	uint64_t chosen = (uint64_t)n->moe_layers * k3_index_config(r->ix)->chosen;

	printf("\"token\":{\"parameters\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"expert_bytes\":%"
	       PRIu64 "},", r->resident.parameters - n->embedding.parameters +
	       chosen * n->expert.parameters,
	       r->resident.bytes - n->embedding.bytes + chosen * n->expert.bytes,
	       chosen * n->expert.bytes);
}

static void report_json(const struct report *r)
{
	const struct k3_census *n = &r->census;
	const char *comma = "";
	struct k3_buf b = K3_BUF_INIT;

	printf("{\"schema\":\"k3.index/1\",");
	json_string("model", k3_index_directory(r->ix));
	json_string("index", k3_index_file(r->ix));
	printf("\"fingerprint\":\"");
	print_fingerprint(r->ix);
	printf("\",\"kda_layers\":%" PRIu32 ",\"mla_layers\":%" PRIu32 ",\"dense_layers\":%" PRIu32
	       ",\"moe_layers\":%" PRIu32 ",\"tensors\":%" PRIu64 ",\"bytes\":%" PRIu64
	       ",\"sums\":%s,", n->kda_layers, n->mla_layers, n->dense_layers, n->moe_layers,
	       r->text.tensors + n->vision_tensors, r->text.bytes + n->vision_bytes,
	       k3_index_has_sums(r->ix) ? "true" : "false");
	json_share("trunk", &n->trunk);
	json_share("embedding", &n->embedding);
	json_share("head", &n->head);
	json_share("output", &n->output);
	json_share("resident", &r->resident);
	json_share("experts", &n->experts);
	json_share("expert", &n->expert);
	json_share("text", &r->text);
	json_share("missing", &n->missing);
	printf("\"vision\":{\"tensors\":%" PRIu64 ",\"bytes\":%" PRIu64 "},", n->vision_tensors,
	       n->vision_bytes);
	json_token(r);
	printf("\"shards\":%" PRIu32 ",\"missing_shards\":[", k3_index_shards(r->ix));
	for (uint32_t i = 0; i < k3_index_shards(r->ix); i++) {
		if (!k3_index_shard_missing(r->ix, i))
			continue;
		k3_buf_clear(&b);
		k3_buf_json(&b, base_name(k3_index_shard_path(r->ix, i)),
			    strlen(base_name(k3_index_shard_path(r->ix, i))));
		printf("%s%s", comma, b.data ? b.data : "null");
		comma = ",";
	}
	printf("],\"runnable\":{\"embedding\":%s,\"layers\":[%s],\"output\":%s},\"layers\":[%s]}\n",
	       r->embedding ? "true" : "false", r->runnable_json.len ? r->runnable_json.data : "",
	       r->output ? "true" : "false", r->layers_json.data);
	k3_buf_free(&b);
}

static int report(const struct options *o, const struct k3_index *ix)
{
	struct report r;

	collect(&r, ix);
	if (r.runnable.failed || r.runnable_json.failed || r.layers_json.failed) {
		cli_warn("out of memory");
		return CLI_FAIL;
	}
	if (o->json)
		report_json(&r);
	else
		report_text(&r);
	if (r.census.missing_shards)
		cli_warn("%" PRIu32 " of %" PRIu32 " shards are missing; layers that can run: %s",
			 r.census.missing_shards, k3_index_shards(ix),
			 r.runnable.len ? r.runnable.data : "none");
	k3_buf_free(&r.runnable);
	k3_buf_free(&r.runnable_json);
	k3_buf_free(&r.layers_json);
	return CLI_OK;
}

static void print_tensor(const struct k3_index *ix, const struct k3_tensor *t, const char *name,
			 bool present)
{
	static const char *const dtype[] = { [K3_BF16] = "BF16", [K3_F32] = "F32", [K3_U8] = "U8" };

	printf("%s\t%s\t", name, dtype[t->dtype]);
	for (uint32_t i = 0; i < t->rank; i++)
		printf("%s%" PRIu64, i ? "," : "", t->shape[i]);
	printf("\t%s\t", t->shard == UINT32_MAX ? "-" :
	       base_name(k3_index_shard_path(ix, t->shard)));
	if (present)
		printf("%" PRIu64 "\t%" PRIu64 "\n", t->offset, t->bytes);
	else
		printf("-\t%" PRIu64 "\n", t->bytes);
}

static int list(const struct options *o, const struct k3_index *ix)
{
	struct k3_tensor t;
	char name[256];
	uint64_t matches = 0;
	bool present;

	for (uint64_t i = 0; i < k3_index_count(ix); i++) {
		present = k3_index_at(ix, i, &t);
		k3_role_name(t.role, t.layer, t.expert, name, sizeof name);
		if (o->glob && fnmatch(o->glob, name, 0))
			continue;
		matches++;
		print_tensor(ix, &t, name, present);
	}
	if (!matches) {
		cli_warn("%s: no tensor matches '%s'", k3_index_directory(ix), o->glob);
		return CLI_FAIL;
	}
	return CLI_OK;
}

/* Makes the index; a MODEL that is an index is made anew from the directory it is of. */
static int build(const struct options *o, struct k3_index **ix, struct k3_err *err)
{
	struct k3_index *old = NULL;
	struct stat s;
	int rc;

	if (stat(o->model, &s) || S_ISDIR(s.st_mode))
		return k3_index_build(o->model, o->output, ix, err);
	rc = k3_index_read(o->model, &old, err);
	if (!rc)
		rc = k3_index_build(k3_index_directory(old), o->output ? o->output : o->model, ix,
				    err);
	k3_index_close(old);
	return rc;
}

static int run(const struct options *o)
{
	struct k3_index *ix = NULL;
	struct k3_err err;
	bool open = o->list || o->verify;
	int rc = open ? k3_index_open(o->model, &ix, &err) : build(o, &ix, &err);
	int status = CLI_OK;

	if (!rc && o->sum)
		rc = k3_index_add_sums(&ix, &err);
	if (!rc && o->verify)
		rc = k3_index_verify(ix, &err);
	if (rc)
		status = cli_error(rc, &err);
	else if (o->list)
		status = list(o, ix);
	else if (o->verify)
		puts("the experts and the embedding agree with their sums");
	else
		status = report(o, ix);
	k3_index_close(ix);
	return status;
}

/* The operands, and options that contradict each other. */
static int check(struct options *o, int count, char **operand)
{
	if (o->list + o->verify + (o->output || o->json || o->sum) > 1)
		return cli_usage("--list, --verify and the making of an index exclude each other");
	if (count == 1 && o->list) {
		o->glob = operand[0];
		count = 0;
	}
	o->model = cli_model_operand(o->model, count, operand);
	return o->model ? CLI_OK : CLI_USAGE;
}

int main(int argc, char **argv)
{
	enum { SUM = 256, VERIFY };
	static const struct option longs[] = {
		{ "model", required_argument, NULL, 'm' },
		{ "output", required_argument, NULL, 'o' },
		{ "json", no_argument, NULL, 'j' },
		{ "sum", no_argument, NULL, SUM },
		{ "list", no_argument, NULL, 'l' },
		{ "verify", no_argument, NULL, VERIFY },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 }
	};
	struct options o = { 0 };
	int c, status;

	cli_start("k3-index");
	opterr = 0;
	while ((c = getopt_long(argc, argv, "m:o:jlhV", longs, NULL)) != -1) {
		switch (c) {
		case 'm': o.model = optarg; break;
		case 'o': o.output = optarg; break;
		case 'j': o.json = true; break;
		case 'l': o.list = true; break;
		case SUM: o.sum = true; break;
		case VERIFY: o.verify = true; break;
		case 'h':
			fputs(usage_text, stdout);
			return cli_end(CLI_OK);
		case 'V':
			cli_version();
			return cli_end(CLI_OK);
		default:
			return cli_end(cli_usage("unknown option, or one without its value: '%s'",
						 argv[optind - 1]));
		}
	}
	status = check(&o, argc - optind, argv + optind);
	return cli_end(status ? status : run(&o));
}
