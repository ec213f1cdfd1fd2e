"""The report of pooling.py as one page: curves as SVG, and every number as a table. Nothing is fetched."""
import html

COLORS = ['#0b6e4f', '#c1440e', '#1d4e89', '#7a5195', '#8d6a00']
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 520, 300, 56, 44, 16, 16
COLUMNS = [('rate', '{:.2f}'), ('requests', '{:d}'), ('failed', '{:d}'), ('tokens_on_time', '{:.1%}'), ('tokens_on_time_per_request', '{:.1%}'),
           ('requests_on_time', '{:.1%}'), ('ttft_p50', '{:.2f}'), ('ttft_p99', '{:.2f}'), ('tbt_p50', '{:.3f}'), ('tbt_p99', '{:.3f}'),
           ('tokens_per_second', '{:.1f}'), ('switches', '{:.0f}'), ('hidden_share', '{:.0%}'), ('visible_seconds', '{:.2f}'),
           ('load_bytes_per_second', '{:.3g}'), ('parkings', '{:.0f}')]


def ticks(most):
    step = 10 ** len(str(int(most))) / 10 if most >= 1 else 0.1
    while most / step > 6:
        step *= 2
    while most / step < 3:
        step /= 2
    count = int(most / step + 1e-9)
    return [i * step for i in range(count + 1)]


def chart(title, unit, key, systems, top=None, goal=None):
    points = {name: [(p['rate'], p[key]) for p in rows if p.get(key) is not None] for name, rows in systems.items()}
    points = {name: rows for name, rows in points.items() if rows}
    if not points:
        return ''
    x_most = max(x for rows in points.values() for x, _ in rows) * 1.02
    y_most = top or max(max(y for rows in points.values() for _, y in rows) * 1.1, 1e-9)

    def x_of(x):
        return LEFT + x / x_most * (WIDTH - LEFT - RIGHT)

    def y_of(y):
        return HEIGHT - BOTTOM - min(y / y_most, 1) * (HEIGHT - BOTTOM - TOP)

    out = [f'<figure><figcaption>{html.escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">']
    for y in ticks(y_most):
        label = f'{y:.0%}' if top == 1 else f'{y:g}'
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(y):.1f}" y2="{y_of(y):.1f}"/>'
                   f'<text x="{LEFT - 6}" y="{y_of(y) + 4:.1f}" text-anchor="end">{label}</text>')
    for x in ticks(x_most):
        out.append(f'<text x="{x_of(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">requests per second{html.escape(unit)}</text>')
    if goal:
        out.append(f'<line class="goal" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(goal):.1f}" y2="{y_of(goal):.1f}"/>')
    for i, name in enumerate(systems):
        rows = points.get(name, [])
        path = ' '.join(f'{x_of(x):.1f},{y_of(y):.1f}' for x, y in rows)
        color = COLORS[i % len(COLORS)]
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        out += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.5" fill="{color}"><title>{html.escape(name)}: {x:g}/s, {y:.4g}</title></circle>' for x, y in rows]
    return ''.join(out) + '</svg></figure>'


def table(systems):
    head = ''.join(f'<th>{html.escape(key.replace("_", " "))}</th>' for key, _ in COLUMNS)
    body = ''
    for name, rows in systems.items():
        for row in rows:
            cells = ''.join(f'<td>{form.format(row[key]) if row.get(key) is not None else "-"}</td>' for key, form in COLUMNS)
            body += f'<tr><th>{html.escape(name)}</th>{cells}</tr>'
    return f'<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>'


def page(report):
    systems = report['systems']
    legend = ''.join(f'<span><i style="background:{COLORS[i % len(COLORS)]}"></i>{html.escape(name)}</span>' for i, name in enumerate(systems))
    crossings = ''.join(f'<tr><th>{html.escape(name)}</th><td>{f"{rate:.2f} requests/s" if rate else "below the lowest rate"}</td></tr>'
                        for name, rate in report['crossings'].items())
    sizes = ', '.join(f'{html.escape(name)} {size / 1e6:.0f} MB' for name, size in report['models'].items())
    facts = (f'{len(report["models"])} models ({sizes}) in device memory for {report["budget_models"]} ({report["device_memory"] / 2**20:.0f} MiB); '
             f'Poisson arrivals for {report["seconds"]:g} s per rate, lengths: {html.escape(str(report["lengths"]))} scaled by {report["length_scale"]:g}; '
             f'deadlines {report["ttft"]:g} s to the first token, {report["tbt"]:g} s between tokens; {report["threads"]} threads; '
             f'copy bandwidth of the same run {report["copy_bytes_per_second"] / 1e9:.1f} GB/s; load average before '
             f'{", ".join(f"{x:.1f}" for x in report["load_average_before"])}.')
    swaps = ''.join(f'<tr><th>{html.escape(name)}</th><td>{s["away"]:.3f}</td><td>{s["away_max"]:.3f}</td><td>{s["there"]:.3f}</td>'
                    f'<td>{"%.1f" % (s["bytes_per_second"] / 1e9) if s["bytes_per_second"] else "-"}</td></tr>' for name, s in report['swaps'].items())
    charts = ''.join([chart('Tokens on time', '', 'tokens_on_time', systems, top=1, goal=0.9),
                      chart('Requests with every token on time', '', 'requests_on_time', systems, top=1, goal=0.9),
                      chart('Time to first token, 99th percentile (s)', '', 'ttft_p99', systems),
                      chart('Gap between tokens, 99th percentile (s)', '', 'tbt_p99', systems),
                      chart('Output tokens per second', '', 'tokens_per_second', systems),
                      chart('Switches', '', 'switches', systems),
                      chart('Share of switches that nobody noticed (< 20 ms)', '', 'hidden_share', systems, top=1),
                      chart('Bytes per second of switches', '', 'load_bytes_per_second', systems)])
    return f'''<!doctype html><html lang="en"><meta charset="utf-8"><title>Models that do not fit together</title>
<meta name="viewport" content="width=device-width">
<style>body{{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1120px;padding:0 1rem;color:#222}}
figure{{display:inline-block;width:min(520px,100%);margin:.5rem .5rem 1rem 0}}figcaption{{font-weight:600}}svg{{width:100%}}
svg text{{font-size:12px;fill:#555}}.grid{{stroke:#e5e5e5}}.goal{{stroke:#999;stroke-dasharray:5 4}}
.legend span{{margin-right:1.2rem}}.legend i{{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:2px}}
.wide{{overflow-x:auto}}table{{border-collapse:collapse;font-size:13px}}th,td{{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e5e5e5}}
tbody th{{text-align:left;white-space:nowrap}}</style>
<h1>Models that do not fit together</h1><p>{facts}</p>
<h2>90 % of tokens on time up to</h2><table><tbody>{crossings}</tbody></table>
<h2>One model after the other on an idle server</h2><table><thead><tr><th></th><th>first token of a model that is away, s</th><th>at most</th>
<th>of one that is there, s</th><th>GB/s written</th></tr></thead><tbody>{swaps}</tbody></table>
<h2>Curves</h2><p class="legend">{legend}</p>{charts}
<h2>Numbers</h2><p>Times in seconds.</p><div class="wide">{table(systems)}</div></html>
'''
