#!/bin/sh
# k3-step: bad weights and reads that fail end the run with a name, on any number of threads
. tests/cmd/lib.sh
cd "$tmp" || exit 1
patch() { python3 "$top/tests/reference/patch.py" "$@"; }
fresh() { rm -rf m; cp -r "$demo" m; chmod -R u+w m; }
layer=language_model.model.layers
# patient COMMAND...: goes on when it succeeds, or after five seconds
patient() {
	tries=0
	until "$@" || [ $tries -ge 100 ]; do
		sleep 0.05
		tries=$((tries + 1))
	done
}
recorded() { [ "$(wc -c <out)" -ge 8320 ]; }
threads() { [ "$(find /proc/$pid/task -mindepth 1 -maxdepth 1 | wc -l)" -ge 2 ]; }

# ---- weights that are not numbers ----
fresh
patch m "$layer.3.self_attn.o_proj.weight" c07f 0 2
for t in 1 2 3; do
	fails 1 'layer 3, sequence 0, position 0: the hidden state is not finite' "a NaN in attention, $t threads" \
		sh -c "echo 5 6 7 | k3-step -m m -t $t >out"
	ok "$([ ! -s out ]; echo $?)" 'and no record'
done
fresh
patch m "$layer.4.block_sparse_moe.shared_experts.down_proj.weight" 807f 0 2
fails 1 'layer 4, sequence 1, position 0: the hidden state is not finite' 'an infinity in an MLP; the second sequence' \
	sh -c 'printf "\n5\n" | k3-step -b 2 -m m >out'
fresh
patch m "$layer.5.block_sparse_moe.gate.weight" c07f $((7 * 192 * 2)) 2
fails 1 "layer 5, sequence 0, position 0: the router's score of expert 7 is not finite" 'a NaN in the router' \
	sh -c 'echo 5 6 | k3-step -m m >out'
fresh
patch m "$layer.5.block_sparse_moe.gate.e_score_correction_bias" 0000c07f $((7 * 4)) 4
fails 1 "layer 5, sequence 0, position 0: the router's bias of expert 7 is not finite" 'a NaN in its bias' \
	sh -c 'echo 5 6 | k3-step -m m >out'
fresh
patch m language_model.lm_head.weight c07f $((1234 * 192 * 2)) 2
fails 1 'sequence 0, position 1: the logit of id 1234 is not finite' 'a NaN in the head' \
	sh -c 'echo 5 6 | k3-step -m m >out'
fresh
patch m 'language_model.model.embed_tokens.weight' c07f $((6 * 192 * 2)) 2
fails 1 'layer 0, sequence 0, position 1: the hidden state is not finite' 'a NaN in the embedding' \
	sh -c 'echo 5 6 | k3-step -m m >out'

# ---- scales ----
fresh
patch m "$layer.2.block_sparse_moe.experts.*.w2.weight_scale" fc
echo 5 | k3-step -m m >out 2>err
! grep -q 'scale byte' err
ok $? 'scale 252 is the largest'
fresh
patch m "$layer.2.block_sparse_moe.experts.*.w2.weight_scale" fd 5 1
for t in 1 2 3; do
	fails 1 'offset [0-9]+: .*layers\.2\..*experts\.[0-9]+\.w2\.weight_scale: scale byte 253 is above 252' \
		"scale 253 is refused, $t threads" sh -c "echo 5 | k3-step -m m -t $t >out"
done
patch m "$layer.2.block_sparse_moe.experts.*.w2.weight_scale" ff 5 1
fails 1 'scale byte 255' 'and so is 255' sh -c 'echo 5 | k3-step -m m >out'

# ---- a file that changes while it is read ----
for t in 1 2; do
	fresh
	mkfifo ids
	k3-step -m m -t $t -s state <ids >out 2>err &
	pid=$!
	exec 3>ids
	echo 5 6 7 >&3
	patient recorded
	truncate -s 500000 m/model-00002-of-000002.safetensors
	echo 8 >&3
	exec 3>&-
	wait $pid
	is "$?,$(wc -l <err),$(wc -c <out)" 1,1,8320 "a shard cut in mid-run, $t threads: status 1, one line, no record"
	grep -q 'm/model-00002-of-000002.safetensors: the file ends at or before offset [0-9]*, [0-9]* bytes too early' err
	ok $? 'which names file and offset'
	cp "$demo/model-00002-of-000002.safetensors" m/
	rm -f m/*.k3i
	echo 5 6 7 8 | k3-step -m "$demo" >want
	k3-step -m m -s state </dev/null >got 2>err
	same want got 'and the state goes on when the file is back'
	rm -f state ids
done

# ---- a file that is another one before it is read ----
for t in 1 2; do
	fresh
	mkfifo ids
	k3-step -m m -t $t <ids >out 2>err &
	pid=$!
	exec 3>ids
	# other threads are there when the index was looked at and ids are waited for
	patient threads
	cp "$demo/model-00002-of-000002.safetensors" m/new
	mv m/new m/model-00002-of-000002.safetensors
	echo 8 >&3
	exec 3>&-
	wait $pid
	is "$?,$(wc -l <err),$(wc -c <out)" 1,1,0 "a shard replaced before it was read, $t threads: status 1, one line, no record"
	grep -q 'm/model-00002-of-000002.safetensors was replaced or written to' err
	ok $? 'which names it'
	rm -f ids
done

# ---- part of a model ----
fresh
rm m/model-00002-of-000002.safetensors m/*.k3i
fails 1 'model-00002-of-000002' 'a shard that is missing is named' sh -c 'echo 5 | k3-step -m m >out'
plan
