// The page of `linnet profile --html`: data as JSON, and a script that shows it.
#include <llvm/Support/JSON.h>
#include <llvm/Support/raw_ostream.h>

#include "compiler/cli/profile.h"

namespace linnet::cli {

namespace {

constexpr const char* kStyle = R"(
body { font: 14px sans-serif; margin: 1.5em; color: #222; }
table { border-collapse: collapse; margin: .5em 0; }
th, td { padding: 2px 9px; text-align: right; }
th { border-bottom: 1px solid #999; font-weight: 600; }
td:first-child, th:first-child { text-align: left; }
tr.kernel { cursor: pointer; } tr.kernel:hover { background: #eef4fa; }
tr.chosen { background: #dbe9f6; }
.note { color: #666; } .bad { color: #b03020; font-weight: 600; }
#files button { margin: 0 .4em .4em 0; } #files button.chosen { background: #dbe9f6; }
#source { font: 12px monospace; border-top: 1px solid #ccc; width: 100%; }
#source td { padding: 0 8px; white-space: pre; }
#source td.code { text-align: left; width: 60%; }
#source tr.hot td { background: #fdeedd; } #source tr.conflict td { background: #fbdada; }
#source .line { color: #999; }
)";

constexpr const char* kScript = R"(
const data = JSON.parse(document.getElementById('data').textContent);
const show = x => x >= 1e9 ? (x/1e9).toPrecision(4)+' G' : x >= 1e6 ? (x/1e6).toPrecision(4)+' M' : x >= 1e4 ? (x/1e3).toPrecision(4)+' k' : String(x);
const cell = (row, text, kind) => { const c = row.insertCell(); c.textContent = text; if (kind) c.className = kind; return c; };
const base = name => name.split('/').pop();
let kernel = 0, file = '';

function table(id, heads) {
  const t = document.getElementById(id); t.innerHTML = '';
  const row = t.createTHead().insertRow();
  for (const h of heads) { const c = document.createElement('th'); c.textContent = h; row.appendChild(c); }
  return t.createTBody();
}
function kernels() {
  const body = table('kernels', ['kernel', 'blocks', 'warp instr.', 'mma', 'moved B', 'needed B', 'conflicts', 'registers', 'blocks/SM', 'modelled us', 'bound']);
  data.profile.kernels.forEach((k, i) => {
    const row = body.insertRow(), c = k.counted;
    row.className = 'kernel' + (i == kernel ? ' chosen' : '');
    row.onclick = () => { kernel = i; file = ''; draw(); };
    cell(row, k.kernel); cell(row, show(c.blocks)); cell(row, show(c.warp_instructions)); cell(row, show(c.mma));
    cell(row, show(32 * (c.load_sectors + c.store_sectors + c.local_sectors)));
    cell(row, show(c.compulsory_bytes_read + c.compulsory_bytes_written));
    const extra = c.wavefronts - c.wavefronts_minimum;
    cell(row, extra ? show(extra) : 'none', extra ? 'bad' : '');
    cell(row, k.registers + (k.spilled_bytes ? ' (spills)' : '')); cell(row, k.modelled.blocks_per_sm);
    cell(row, (k.modelled.seconds * 1e6).toFixed(1)); cell(row, k.modelled.bound);
  });
  const parts = table('parts', ['modelled, us', ...Object.keys(data.profile.kernels[0].modelled.parts)]);
  data.profile.kernels.forEach(k => { const row = parts.insertRow(); cell(row, k.kernel);
    for (const [name, s] of Object.entries(k.modelled.parts)) cell(row, (s * 1e6).toFixed(1), name == k.modelled.bound ? 'bad' : ''); });
}
function lines() {
  const launch = data.launches[kernel] || {lines: []}, own = launch.lines;
  const names = [...new Set(own.map(l => base(l.file)))].filter(n => data.sources[n]);
  const weight = n => own.filter(l => base(l.file) == n).reduce((s, l) => s + l.issued, 0);
  names.sort((a, b) => weight(b) - weight(a));
  if (!names.includes(file)) file = names.find(n => n.endsWith('.cu')) || names[0] || '';
  const total = own.reduce((s, l) => s + l.issued, 0) || 1;
  const files = document.getElementById('files'); files.innerHTML = '';
  for (const n of names) {
    const b = document.createElement('button');
    b.textContent = n + ' ' + (100 * weight(n) / total).toFixed(1) + ' %';
    if (n == file) b.className = 'chosen';
    b.onclick = () => { file = n; draw(); };
    files.appendChild(b);
  }
  const hot = table('hot', ['hottest lines', '% of instr.', 'mma', 'MUFU', 'sectors', 'extra sectors', 'conflicts', 'source']);
  [...own].sort((a, b) => b.issued - a.issued).slice(0, 12).forEach(l => { const row = hot.insertRow();
    row.className = 'kernel'; row.onclick = () => { if (data.sources[base(l.file)]) { file = base(l.file); draw(); document.getElementById('l' + l.line).scrollIntoView({block: 'center'}); } };
    cell(row, base(l.file) + ':' + l.line); cell(row, (100 * l.issued / total).toFixed(1)); cell(row, show(l.mma)); cell(row, show(l.mufu));
    cell(row, show(l.sectors)); cell(row, show(l.sectors - l.sectors_minimum));
    const extra = l.wavefronts - l.wavefronts_minimum; cell(row, show(extra), extra ? 'bad' : '');
    const text = (data.sources[base(l.file)] || '').split('\n')[l.line - 1] || ''; cell(row, text.trim()).style.textAlign = 'left'; });
  const body = table('source', ['line', '% of instr.', 'mma', 'sectors', 'wavefronts', 'conflicts', file]);
  const of = {}; for (const l of own) if (base(l.file) == file) of[l.line] = l;
  (data.sources[file] || '').split('\n').forEach((text, i) => {
    const row = body.insertRow(), l = of[i + 1]; row.id = 'l' + (i + 1);
    cell(row, i + 1, 'line');
    const extra = l ? l.wavefronts - l.wavefronts_minimum : 0;
    for (const x of [l && (100 * l.issued / total).toFixed(1), l && l.mma, l && l.sectors, l && l.wavefronts, extra]) cell(row, x ? (typeof x == 'string' ? x : show(x)) : '');
    cell(row, text, 'code');
    if (l && 100 * l.issued / total > 3) row.className = 'hot';
    if (extra) row.className = 'conflict';
  });
}
function draw() { kernels(); lines(); document.getElementById('chosen').textContent = data.profile.kernels[kernel].kernel; }
document.getElementById('title').textContent = data.profile.op + ': ' + data.profile.what;
document.getElementById('about').textContent = data.profile.sequences + ' sequences of ' + data.profile.tokens + ' tokens, ' + data.profile.heads + ' heads, on ' + data.profile.device + '. Counts ' + data.profile.counts_from + '. Times are modelled for ' + data.profile.modelled_gpu + ', ' + (data.profile.modelled_seconds * 1e6).toFixed(1) + ' us in all.';
draw();
)";

// Inside <script> a closing tag would end it early.
std::string for_script(std::string text) {
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3)
    text.replace(at, 2, "<\\/");
  return text;
}

std::string sources_json(const Profile& p) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream json(stream);
  json.object([&] {
    for (const auto& [name, source] : p.sources)
      json.attribute(name.substr(name.rfind('/') + 1), source);
  });
  return text;
}

}  // namespace

std::string profile_page(const Profile& p) {
  return "<!doctype html>\n<html><head><meta charset=\"utf-8\"><title>linnet profile " + p.op +
         "</title><style>" + kStyle +
         "</style></head><body>\n<h2 id=\"title\"></h2><p id=\"about\" class=\"note\"></p>\n"
         "<table id=\"kernels\"></table><table id=\"parts\"></table>\n" +
         roofline(p) +
         "<h3>Lines of <span id=\"chosen\"></span></h3><p class=\"note\">Counted in the largest "
         "call "
         "that was run. Choose a kernel above, a file here.</p>\n"
         "<table id=\"hot\"></table><div id=\"files\"></div><table id=\"source\"></table>\n"
         "<script type=\"application/json\" id=\"data\">{\"profile\":" +
         for_script(profile_json(p)) + ",\"launches\":" + for_script(p.lines) +
         ",\"sources\":" + for_script(sources_json(p)) + "}</script>\n<script>" + kScript +
         "</script></body></html>\n";
}

}  // namespace linnet::cli
