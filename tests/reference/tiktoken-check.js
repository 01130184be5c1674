// SPDX-License-Identifier: Apache-2.0
// tiktoken-check.js DIR FILE... - the comparison of tiktoken-check.sh; DIR/node_modules has
// tiktoken.
'use strict';
const fs = require('fs');
const path = require('path');
const { spawnSync } = require('child_process');

const dir = path.resolve(process.argv[2]);
const { Tiktoken } = require(path.join(dir, 'node_modules/tiktoken'));
const o200k = require(path.join(dir, 'node_modules/tiktoken/encoders/o200k_base.json'));

const UPPER = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]';
const LOWER = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]';
const SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
const PATTERN = ['[\\p{Han}]+',
	`[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${SHORT}`,
	`[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${SHORT}`,
	'\\p{N}{1,3}', ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*', '\\s*[\\r\\n]+', '\\s+(?!\\S)', '\\s+'];

// The same in the words of this engine: nested classes for unions with an intersection, no
// (?i:), and a \s that is White_Space (JavaScript's has U+FEFF and lacks U+0085).
const NATIVE = new RegExp(PATTERN.map((x) => x
	.replaceAll('[\\p{Han}]', '\\p{sc=Han}')
	.replaceAll(UPPER, '[[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]--\\p{sc=Han}]')
	.replaceAll(LOWER, '[[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]--\\p{sc=Han}]')
	.replaceAll(SHORT, "(?:'(?:[sS\u017f]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD]))?")
	.replaceAll('[^\\s', '[^\\p{White_Space}')
	.replaceAll('(?!\\S)', '(?!\\P{White_Space})')
	.replaceAll('\\s', '\\p{White_Space}')).join('|'), 'gv');

// LATIN LETTER PHARYNGEAL VOICED FRICATIVE is Ll until Unicode 16 and Lo in 17: left out, for the
// result would depend on the engine.
const MOVED = [0x295];

// A small generator of numbers with a fixed start, so that every run sees the same texts.
let state = 0x2545f491;
function random(n) {
	state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
	return (state >>> 0) % n;
}

function save(name, tokens) {
	const model = path.join(dir, name);
	fs.mkdirSync(model, { recursive: true });
	fs.writeFileSync(path.join(model, 'tiktoken.model'),
		tokens.map((t, i) => `${t} ${i}\n`).join(''));
	const special = { [tokens.length]: { content: '<|open|>' } };
	fs.writeFileSync(path.join(model, 'tokenizer_config.json'),
		JSON.stringify({ added_tokens_decoder: special }));
	const ranks = `! 0 ${tokens.join(' ')}`;
	return { name, model, real: new Tiktoken(ranks, { '<|open|>': tokens.length },
		PATTERN.join('|')) };
}

// Its ranks are ids in order; the last ids are special ones.
function releasedVocabulary() {
	const tokens = [];
	for (const line of o200k.bpe_ranks.split('\n')) {
		const [, start, ...list] = line.split(' ');
		list.forEach((t, i) => { tokens[Number(start) + i] = t; });
	}
	return save('o200k', tokens);
}

// All single bytes and all pairs of bytes in a random order: ids that depend on where the
// pieces end, which those of a vocabulary made from such pieces hardly do.
function pairVocabulary() {
	const tokens = [];
	for (let i = 0; i < 256; i++)
		tokens.push(Buffer.from([i]));
	for (let i = 0; i < 65536; i++)
		tokens.push(Buffer.from([i >> 8, i & 255]));
	for (let i = tokens.length - 1; i > 0; i--) {
		const j = random(i + 1);
		[tokens[i], tokens[j]] = [tokens[j], tokens[i]];
	}
	return save('pairs', tokens.map((t) => t.toString('base64')));
}

function ours(model, texts, options) {
	const input = Buffer.concat(texts.flatMap((t) => [Buffer.from(t), Buffer.from([0])]));
	const run = spawnSync('k3-tokenize', ['-m', model, '-0', ...options],
		{ input, maxBuffer: 2 ** 31 });
	if (run.status !== 0)
		throw new Error(`k3-tokenize: ${run.error ?? run.stderr}`);
	return run.stdout.toString('latin1');
}

// The pieces of -p as byte lengths: column 1 is the piece, column 3 its bytes in hexadecimal.
function pieceLengths(output) {
	const texts = output.split('\n\n');
	texts.pop();
	return texts.map((text) => {
		const lengths = [];
		for (const line of text.split('\n').filter(Boolean)) {
			const [piece, , hex] = line.split('\t');
			lengths[piece] = (lengths[piece] ?? 0) + hex.length / 2;
		}
		return lengths.join(' ');
	});
}

function show(kind, text, a, b) {
	const x = a.split(' '), y = b.split(' ');
	const i = x.findIndex((v, k) => v !== y[k]);
	console.log(`${kind}: ${JSON.stringify(text.slice(0, 200))}\n  at ${i}: ` +
		`${x.slice(i, i + 8).join(' ')} | ${y.slice(i, i + 8).join(' ')}`);
}

const count = { texts: 0, bytes: 0, ids: 0, pieces: 0 };
const total = { ...count };

// Compares a list of texts; returns those whose ids and those whose pieces differ.
function compare(texts, vocabularies, options = [], quiet = false) {
	const wrong = { ids: new Set(), pieces: new Set() };
	const check = (kind, name, text, a, b) => {
		if (a === b)
			return;
		if (!quiet)
			show(name, text, a, b);
		wrong[kind].add(text);
	};
	for (const v of vocabularies) {
		const lines = ours(v.model, texts, options).split('\n');
		texts.forEach((t, i) => {
			const ids = options.length ? v.real.encode(t, 'all')
				: v.real.encode_ordinary(t);
			count.ids += ids.length;
			check('ids', v.name, t, lines[i], ids.join(' '));
		});
	}
	// The expression knows no special spellings.
	const pieces = options.length ? []
		: pieceLengths(ours(vocabularies[0].model, texts, ['-p']));
	pieces.forEach((lengths, i) => {
		const native = (texts[i].match(NATIVE) ?? []).map((m) => Buffer.byteLength(m));
		count.pieces += native.length;
		check('pieces', 'pieces', texts[i], lengths, native.join(' '));
	});
	count.texts += texts.length;
	count.bytes += texts.reduce((n, t) => n + Buffer.byteLength(t), 0);
	return wrong;
}

// Strings of a few characters of every class, dense in what the pattern looks at.
const POOL = [...'  \t\n\r\u00a0\u2003\u3000\u0085\u001c\u200b\ufeffaabzAABZsStTrReEvVmMlLdD\'\'\'' +
	'\u2019\u017f\u212a\u01c5\u02b0\u00aa\u0301\u0301\u0903\u20dd\u4f60\u597d\u2e80\u3005\u3007' +
	'\u3021\u302a\u{16fe2}\u{16ff0}\u{20000}\u3042\u30fc\uac00\u0e01\u0e31\u0627\u064b\u05d0' +
	'109\u0661\u00b2\u2167!!.,/<|>_-$\u20ac\u{1f600}\u200d\ufe0f\u{1f3fd}\u0378\ufffd\u00e9\u00df'];

function randomTexts(pool, n) {
	return Array.from({ length: n }, () => {
		const some = Array.from({ length: 1 + random(8) }, () => pool[random(pool.length)]);
		const from = random(3) ? some : pool;
		const length = 1 + random(40);
		return Array.from({ length }, () => from[random(from.length)]).join('');
	});
}

// Texts with a number of code points each, in contexts where its class decides.
function codePointTexts(codes) {
	const texts = [];
	for (let i = 0; i < codes.length; i += 64) {
		texts.push(codes.slice(i, i + 64).map((code) => {
			const c = String.fromCodePoint(code);
			return `${c}a ${c}A${c}1${c}!${c} ${c}${c}\n${c}\u4f60${c}\u0301'${c}x's`;
		}).join('\r'));
	}
	return texts;
}

function fileTexts(file) {
	const text = fs.readFileSync(file).toString().replaceAll('\0', '\n');
	const texts = [];
	for (let i = 0; i < text.length; i += 20000)
		texts.push(text.slice(i, i + 20000).toWellFormed());
	return texts;
}

// All code points that text may have but NUL, by whether the table's version has assigned them.
function codePoints() {
	const assigned = new Uint8Array(0x110000);
	const ages = fs.readFileSync('/usr/share/unicode/DerivedAge.txt', 'utf8');
	for (const line of ages.split('\n')) {
		const m = /^([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;/.exec(line);
		if (m)
			assigned.fill(1, parseInt(m[1], 16), parseInt(m[2] ?? m[1], 16) + 1);
	}
	const all = Array.from({ length: 0x110000 }, (_, c) => c)
		.filter((c) => c && (c < 0xd800 || c >= 0xe000) && !MOVED.includes(c));
	return { known: all.filter((c) => assigned[c]), unknown: all.filter((c) => !assigned[c]) };
}

function report(what) {
	console.log(`${what}: ${count.texts} texts, ${count.bytes} bytes, ${count.ids} ids, ` +
		`${count.pieces} pieces`);
	for (const k of Object.keys(count)) {
		total[k] += count[k];
		count[k] = 0;
	}
}

// Code points of no version up to the table's: which of them do the others split otherwise,
// because a later version has assigned them?
function compareUnknown(unknown, vocabularies) {
	const differ = { ids: [], pieces: [] };
	for (let i = 0; i < unknown.length; i += 65536) {
		const part = unknown.slice(i, i + 65536);
		const texts = codePointTexts(part);
		const wrong = compare(texts, vocabularies, [], true);
		const some = part.filter((_, k) => {
			const text = texts[Math.floor(k / 64)];
			return wrong.ids.has(text) || wrong.pieces.has(text);
		});
		const single = some.map((c) => codePointTexts([c])[0]);
		const each = compare(single, vocabularies, [], true);
		for (const kind of ['ids', 'pieces'])
			differ[kind].push(...some.filter((_, k) => each[kind].has(single[k])));
	}
	return differ;
}

function main() {
	const vocabularies = [releasedVocabulary(), pairVocabulary()];
	const { known, unknown } = codePoints();
	let wrong = 0;
	const add = (what, texts, options) => {
		// The pieces of too many texts are more than one string may hold.
		for (let i = 0; i < texts.length; i += 2000) {
			const w = compare(texts.slice(i, i + 2000), vocabularies, options);
			wrong += w.ids.size + w.pieces.size;
		}
		report(what);
	};

	add('random strings', randomTexts(POOL, 100000));
	add('random strings with special spellings', randomTexts(
		[...POOL, '<|open|>', '<|open|>', '<|open', '<|', '|>', '<<|open|>'], 50000),
		['--special']);
	add('assigned code points', codePointTexts(known));
	for (const file of process.argv.slice(3))
		add(path.basename(file), fileTexts(file));
	const later = compareUnknown(unknown, vocabularies);
	console.log(`of ${unknown.length} code points that are not assigned in the table's ` +
		`version, ${later.ids.length} have other ids in tiktoken, ` +
		`${later.pieces.length} other pieces with Unicode ${process.versions.unicode}`);
	console.log(`${wrong} differences in ${total.texts} texts, ${total.bytes} bytes, ` +
		`${total.ids} ids, ${total.pieces} pieces`);
	process.exitCode = wrong ? 1 : 0;
}

main();
