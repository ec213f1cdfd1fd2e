"""The report of pooling.py as one page: curves, and every number as a table. The page is that of the binary's reports; nothing is fetched."""
import json
import pathlib

TEMPLATE = pathlib.Path(__file__).resolve().parents[1] / 'src' / 'loadgen' / 'page.html'
GOAL = 0.9
COLUMNS = [('rate', 'requests per second', '{:.2f}'), ('requests', 'requests', '{:d}'), ('failed', 'failed', '{:d}'),
           ('tokens_on_time', 'tokens on time', '{:.1%}'), ('tokens_on_time_per_request', 'tokens on time, mean of requests', '{:.1%}'),
           ('requests_on_time', 'requests on time', '{:.1%}'), ('ttft_p50', 'median TTFT (s)', '{:.2f}'), ('ttft_p99', 'p99 TTFT (s)', '{:.2f}'),
           ('tbt_p50', 'median TBT (s)', '{:.3f}'), ('tbt_p99', 'p99 TBT (s)', '{:.3f}'), ('tokens_per_second', 'tokens per second', '{:.1f}'),
           ('switches', 'switches', '{:.0f}'), ('hidden_share', 'switches that nobody noticed', '{:.0%}'), ('visible_seconds', 'visible seconds of switches', '{:.2f}'),
           ('load_bytes_per_second', 'GB/s of switches', '{:.2f}'), ('parkings', 'KV parked', '{:.0f}')]


def value(row, key):
    return row[key] / 1e9 if key == 'load_bytes_per_second' and row.get(key) is not None else row.get(key)


def chart(title, label, key, systems, share=False, goal=None, note=''):
    points = {name: [[row['rate'], value(row, key)] for row in rows if row.get(key) is not None] for name, rows in systems.items()}
    every = [point for rows in points.values() for point in rows]
    if not every:
        return None
    series = []
    for i, (name, rows) in enumerate(points.items()):
        series += [{'name': name, 'kind': 'line', 'colour': f'c{i}', 'points': rows}, {'name': name, 'kind': 'dots', 'colour': f'c{i}', 'large': True, 'points': rows}]
    if goal:
        series.append({'name': f'{goal:.0%}', 'kind': 'goal', 'colour': 'soft', 'points': [[0, goal]]})
    return {'title': title, 'note': note, 'height': 270, 'series': series,
            'x': {'label': 'requests per second', 'low': 0, 'high': 1.04 * max(x for x, _ in every)},
            'y': {'label': label, 'low': 0, 'high': 1.03 if share else 1.1 * max(y for _, y in every), 'share': share}}


def table(title, columns, rows, note='', words=False):
    return {'table': {'title': title, 'note': note, 'columns': columns, 'rows': [{'cells': row, 'class': ''} for row in rows], 'words': words}}


def numbers(systems):
    return [[name, *(form.format(value(row, key)) if row.get(key) is not None else '-' for key, _, form in COLUMNS)] for name, rows in systems.items() for row in rows]


def facts(report):
    sizes = ', '.join(f'{name} {size / 1e6:.0f} MB' for name, size in report['models'].items())
    return [f'{len(report["models"])} models in device memory for {report["budget_models"]} of them ({report["device_memory"] / 2**20:.0f} MiB), by system and load.',
            f'Models: {sizes}. Poisson arrivals for {report["seconds"]:g} s per rate; lengths {report["lengths"]} scaled by {report["length_scale"]:g}. '
            f'On time is a token within {report["ttft"]:g} s to the first and {report["tbt"]:g} s for each further one; a request is if every token is.',
            f'{report["threads"]} threads; memory copies at {report["copy_bytes_per_second"] / 1e9:.1f} GB/s; load average before: '
            f'{", ".join(f"{x:.1f}" for x in report["load_average_before"])}.']


def data(report):
    systems = report['systems']
    crossings = [[name, f'{rate:.2f} requests/s' if rate else 'below the lowest rate'] for name, rate in report['crossings'].items()]
    swaps = [[name, f'{s["away"]:.3f}', f'{s["away_max"]:.3f}', f'{s["there"]:.3f}', f'{s["bytes_per_second"] / 1e9:.1f}' if s['bytes_per_second'] else '-']
             for name, s in report['swaps'].items()]
    charts = [chart('Tokens on time', 'tokens on time', 'tokens_on_time', systems, share=True, goal=GOAL),
              chart('Requests with every token on time', 'requests on time', 'requests_on_time', systems, share=True, goal=GOAL),
              chart('Time to first token, 99th percentile', 'seconds', 'ttft_p99', systems),
              chart('Time between tokens, 99th percentile', 'seconds', 'tbt_p99', systems),
              chart('Output tokens per second', 'tokens / s', 'tokens_per_second', systems),
              chart('Switches of model', 'switches', 'switches', systems),
              chart('Switches that nobody noticed', 'share of switches', 'hidden_share', systems, share=True, note='Nobody waited 20 ms or more for them.'),
              chart('Weights written by switches', 'GB/s', 'load_bytes_per_second', systems)]
    charts = [c for c in charts if c]
    blocks = [table('90 % of tokens are on time up to', ['system', 'load'], crossings),
              table('One model after the other on an idle server', ['system', 'first token of a model that is away (s)', 'at most (s)', 'of one that is there (s)', 'GB/s written'], swaps),
              {'heading': 'By load', 'text': ''}]
    blocks += [{'charts': charts[i:i + 2]} for i in range(0, len(charts), 2)]
    blocks.append(table('Every number', ['system', *(name for _, name, _ in COLUMNS)], numbers(systems)))
    return {'title': 'Models that do not fit together', 'lede': facts(report), 'blocks': blocks}


def page(report):
    return TEMPLATE.read_text().replace('REPORT_DATA', json.dumps(data(report)).replace('<', '\\u003c'))
