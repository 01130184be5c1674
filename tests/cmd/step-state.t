#!/bin/sh
# k3-step: states - made, gone on from, copied, stopped between layers, damaged, in use
. tests/cmd/lib.sh
K3_MODEL=$demo
export K3_MODEL
cd "$tmp" || exit 1

position() { k3-stat -j "$1" | jq -c '[.position, .pending, .layer]'; }

prompt='11 22 33 44 55 66 77 88 99 110'
echo "$prompt" | k3-step >whole

# ---- made and gone on from ----
for cut in 1 3 9; do
	rm -f s
	echo "$prompt" | cut -d' ' -f1-$cut | k3-step -s s --logits none
	echo "$prompt" | cut -d' ' -f$((cut + 1))- | k3-step -s s --at $cut >got
	same whole got "resumed behind id $cut"
done
is "$(position s)" '[10,0,9]' 'k3-stat knows the position'
k3-step -s s --again </dev/null >got
same whole got '--again gives the record of the last id once more'
{ echo; echo 7; } | k3-step -s s --again >got
is "$(k3-stat -j got | jq -c .shape | paste -sd' ' -)" '[1,2048] [0,2048] [1,2048]' \
	'--again comes before the rounds'
echo "$prompt 7" | k3-step >want
tail -c 8192 want >want.row
tail -c 8192 got >got.row
same want.row got.row 'which go on from there'
: >empty
k3-step -s empty --again </dev/null >got
is "$(k3-stat -j got | jq -c .shape)" '[0,2048]' 'an empty file becomes a state, of no id yet'

# more positions than a page of latents holds, in many passes, the residual stream moving along
awk 'BEGIN { for (i = 0; i < 150; i++) print (i * 37) % 2048 }' >many
rm -f s
for from in 1 2 60 64 65 130; do
	to=$(awk -v f=$from 'BEGIN { split("1 2 60 64 65 130 151", a, " ")
		for (i = 1; i < 7; i++) if (a[i] == f) print a[i + 1] - 1 }')
	sed -n "${from},${to}p" many | paste -sd' ' - | k3-step -s s >got
done
paste -sd' ' many | k3-step >want
same want got '150 positions in passes of many lengths'
k3-step -s s --again </dev/null >got
same want got 'and --again after them'
is "$(position s)" '[150,0,9]' 'at position 150'

# ---- copies ----
rm -f s
echo "$prompt" | k3-step -s s --logits none
cp s a
cp s b
echo 5 | k3-step -s a >got.a
echo 6 | k3-step -s b >got.b
echo "$prompt 5" | k3-step >want.a
echo "$prompt 6" | k3-step >want.b
same want.a got.a 'a copied state goes one way'
same want.b got.b 'and the other another'
printf '5\n6\n' | k3-step -s s -s empty >got2
cat got.a >want2
echo 6 | k3-step >>want2
same want2 got2 'two states of different lengths in one round'

# ---- between layers ----
rm -f s
echo "$prompt" | k3-step -s s --until 4 >got
is "$(wc -c <got) $(position s)" '0 [10,10,4]' '--until 4 writes nothing and stands in front of layer 4'
cp s t
k3-step -s s </dev/null >got
same whole got 'the next process finishes the pass, with its record'
k3-step -s t --until 7
is "$(position t)" '[10,10,7]' '--until moves a pass in progress on'
fails 2 'in front of layer 7 already' 'but not back' k3-step -s t --until 7
cp t u
echo 5 | k3-step -s t >got
cat whole got.a >want
same want got 'what comes after a finished pass'
k3-step -s u --again </dev/null >got
same whole got '--again on a pass in progress is its record'
echo "$prompt" | k3-step -s half --until 4
cat whole whole >want
k3-step -s half -s u --again </dev/null >got
same want got 'of one in progress and one that is not it is the record of both'
cp u v
echo 5 | k3-step -s v -b all --again >got
cat whole got.a >want
same want got '--again comes before the round of -b all'
rm v
echo "$prompt" | k3-step -s v --until 4
k3-step -s v --logits all </dev/null | k3-stat -j | jq -c .shape >got
is "$(cat got)" '[10,2048]' 'all rows of a pass that another process began'
printf '\n' | k3-step -s w --until 3
is "$(position w)" '[0,0,9]' 'a round without ids leaves nothing in progress'
rm -f x y
echo "$prompt" | k3-step -s x --until 4
printf '\n' | k3-step -s y --logits none
k3-step -s x -s y </dev/null >got
is "$(k3-stat -j got | jq -c .shape | paste -sd' ' -)" '[1,2048] [0,2048]' \
	'the round of an unfinished pass has a record for the others too'

# ---- parts of the model ----
echo "$prompt" | cut -d' ' -f1-4 | k3-step --layers 0:5 -s low | k3-step --layers 5: -s high --logits none
echo "$prompt" | cut -d' ' -f5- | k3-step --layers 0:5 -s low | k3-step --layers 5: -s high >got
same whole got 'two processes with a state each'
k3-step --layers 0:5 -s low --again </dev/null | k3-stat -j | jq -c .shape >got
is "$(cat got)" '[1,3,192]' '--again of a lower half is a hidden record'
echo "$prompt" | k3-step --layers 0:5 -s lower --until 3
k3-step --layers 0:5 -s lower --again </dev/null | k3-stat -j | jq -c .shape >got
is "$(cat got)" '[10,3,192]' 'of a pass in progress all ids are, for the upper half has not seen them'
fails 1 'a state of layers 0:5, not 0:9' 'a state of other layers' k3-step -s low

# ---- refused ----
fails 1 'holds 10 ids, not 11' '--at another place' k3-step -s s --at 11
cp -r "$demo" other
chmod -R u+w other
rm -f other/*.k3i
sed 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-06/' "$demo/config.json" >other/config.json
fails 1 's: this is a state of another model' 'a state of another model' k3-step -m other -s s
mkfifo hold
k3-step -s s <hold >held &
exec 3>hold
sleep 0.3
fails 1 's: in use by another process' 'a state in use' k3-step -s s
is "$(position s)" '[10,0,9]' 'but k3-stat may look'
exec 3>&-
wait
ln -s s link
for twice in '-s s -s link' '-s s --tap resid@:=s' '-s s --trace link' '-s fresh --tap resid@0=fresh' \
	'--tap resid@0=t --trace t'; do
	# shellcheck disable=SC2086
	fails 2 'are the same file' "$twice" k3-step $twice
done
is "$(position s)" '[10,0,9]' 'the state is as it was'
fails 1 'not a k3 state' 'a file that is no state' sh -c 'echo hello, this is text >text; k3-step -s text'
fails 1 'regular file' 'a directory or a fifo' k3-step -s hold
mkdir ro
cp s ro/s
chmod 444 ro/s
if [ "$(id -u)" -ne 0 ]; then
	fails 1 'ro/s: Permission' 'a read-only state' k3-step -s ro/s
fi
(ulimit -f 300; echo "$prompt" | k3-step -s big --logits none) 2>err
is "$?" 1 'a file that may not grow: status 1'
grep -q '^k3-step: big: offset [0-9]*: File too large' err
ok $? 'and a sentence that names it'
is "$(position big | jq -c .[0:2])" '[0,0]' 'and a state that has taken nothing'
echo "$prompt" | k3-step -s big >got
same whole got 'and can be used when there is room'

# ---- damage ----
rm -f s
echo "$prompt" | k3-step -s s --logits none
echo 7 >id
cp s c
k3-step -s c <id >want
size=$(wc -c <s)
bad=0
for keep in 1 7 8 16 100 4095 4096 8191 8192 20000 100000 $((size - 5000)) $((size - 1)); do
	head -c $keep s >c
	k3-step -s c <id >got 2>err
	status=$?
	# the last bytes of the file may be what an earlier commit left behind
	if [ $status -eq 0 ] && [ $keep -gt $((size - 6000)) ]; then
		cmp -s want got || { bad=1; echo "# $keep bytes give another record"; }
	elif [ $status -ne 1 ] || [ "$(wc -l <err)" -ne 1 ] || [ -s got ]; then
		bad=1
		echo "# $keep bytes were not refused"
	fi
done
ok $bad 'a state cut short is refused'
python3 "$top/tests/reference/flip.py" s 150 >flips 2>&1
is "$(cat flips)" ok 'a state with a byte changed is refused, or the byte meant nothing'

# ---- kill -9 ----
python3 "$top/tests/reference/kill.py" 25 >kills 2>&1
is "$(cat kills)" ok 'killed at any moment and gone on from the state: the same records'
plan
