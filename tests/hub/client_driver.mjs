// What a JavaScript program does: list, download every file, print {path: sha256}.
// argv: JSON {repo, revision, hubUrl, token, xet, snapshot: folder, infos: ask for each file's,
// tensors: say what safetensors' headers say}
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.cwd(), "package.json"));
const hub = await import(pathToFileURL(require.resolve("@huggingface/hub")));
const asked = JSON.parse(process.argv[2]);
const common = { repo: asked.repo, hubUrl: asked.hubUrl };
if (asked.revision) common.revision = asked.revision;
if (asked.token) common.accessToken = asked.token;
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const out = {};

if (asked.tensors) {
	const told = await hub.parseSafetensorsMetadata({ ...common, computeParametersCount: true });
	Object.assign(out, told.parameterCount, { sharded: told.sharded });
} else if (asked.snapshot) {
	const folder = await hub.snapshotDownload({ ...common, cacheDir: asked.snapshot });
	const walk = (dir) => {
		for (const name of readdirSync(dir)) {
			const path = join(dir, name);
			if (statSync(path).isDirectory()) walk(path);
			else out[relative(folder, path)] = sha256(readFileSync(path));
		}
	};
	walk(folder);
} else {
	for await (const row of hub.listFiles({ ...common, recursive: true })) {
		if (row.type !== "file") continue;
		const blob = await hub.downloadFile({ ...common, path: row.path, xet: asked.xet });
		out[row.path] = sha256(Buffer.from(await blob.arrayBuffer()));
		if (!asked.infos) continue;
		const told = await hub.fileDownloadInfo({ ...common, path: row.path });
		const etag = row.lfs ? row.lfs.oid : row.oid;
		if (told.size !== row.size || told.etag.replaceAll('"', "") !== etag)
			throw new Error(`fileDownloadInfo of ${row.path}: ${JSON.stringify(told)}`);
	}
	if ((await hub.downloadFile({ ...common, path: "no/such/file" })) !== null)
		throw new Error("a missing file was found");
	const info = await hub.modelInfo({ name: asked.repo, hubUrl: asked.hubUrl,
		credentials: undefined, accessToken: asked.token });
	if (info.name !== asked.canonical) throw new Error(`modelInfo: ${info.name}`);
}
console.log(JSON.stringify(out));
