"""bench/pooling.py: the figures it prints, on runs made up by hand; its curves."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'bench'))
import pooling  # noqa: E402
import pooling_html  # noqa: E402


def answer(arrival, times, tokens=None, error=None):
    result = pooling.Result(arrival, 'm', wanted=4)
    result.times, result.tokens, result.error = times, len(times) if tokens is None else tokens, error
    return result


def test_tokens_are_late_by_their_own_deadlines_and_failures_count_as_nothing():
    prompt = answer(1.0, [1.5, 1.6, 1.7, 1.8])      # due at 2.0, 2.1, 2.2, 2.3
    late = answer(1.0, [1.9, 2.0, 2.25, 2.25])      # the third is late, the fourth is not
    figures = pooling.score([prompt, late, answer(1.0, [], error='status 503')], ttft=1, tbt=0.1, wall=2)
    assert figures['tokens_on_time'] == pytest.approx(7 / 12)
    assert figures['tokens_on_time_per_request'] == pytest.approx((1 + 0.75 + 0) / 3)
    assert figures['requests_on_time'] == pytest.approx(1 / 3)
    assert (figures['failed'], figures['errors']) == (1, {'status 503': 1})
    assert figures['ttft_p50'] == pytest.approx(0.9) and figures['tokens_per_second'] == 4


def test_tokens_of_one_event_came_together():
    figures = pooling.score([answer(0, [0.5, 3.0], tokens=4)], ttft=1, tbt=1, wall=3)
    assert figures['tokens_on_time'] == 1
    assert pooling.score([answer(0, [0.5, 3.5], tokens=4)], ttft=1, tbt=1, wall=3)['tokens_on_time'] == 0.75


def test_the_crossing_lies_on_the_line_between_two_rates():
    points = [{'rate': rate, 'tokens_on_time': share} for rate, share in ((1, 1.0), (2, 0.95), (4, 0.85))]
    assert pooling.crossing(points) == pytest.approx(3)
    assert pooling.crossing(points[:2]) == 2
    assert pooling.crossing([{'rate': 1, 'tokens_on_time': 0.5}]) is None


def test_the_page_shows_every_system_and_fetches_nothing():
    point = {'rate': 1.0, 'tokens_on_time': 0.9, 'requests_on_time': 0.8, 'ttft_p99': 1.2, 'tbt_p99': 0.1, 'tokens_per_second': 5.0, 'requests': 3, 'failed': 0}
    report = {'systems': {'shoal token': [point, {**point, 'rate': 2.0}], 'other <b>': []}, 'crossings': {'shoal token': 2.0, 'other <b>': None},
              'swaps': {'shoal token': {'away': 0.125, 'away_max': 0.25, 'there': 0.03125, 'bytes_per_second': 4e9},
                        'other <b>': {'away': 2.5, 'away_max': 3, 'there': 0.5, 'bytes_per_second': None}},
              'models': {'a': 10}, 'budget_models': 2, 'device_memory': 1 << 30, 'seconds': 60, 'lengths': 'lognormal', 'length_scale': 1, 'ttft': 10, 'tbt': .1,
              'threads': 2, 'copy_bytes_per_second': 1e9, 'load_average_before': [1, 2, 3]}
    page = pooling_html.page(report)
    assert '<b>' not in page.split('id="report">')[1].split('</script>')[0], 'a name cannot end the script that it is in'
    data = pooling_html.data(report)
    curves = {series['name'] for block in data['blocks'] for chart in block.get('charts', []) for series in chart['series']}
    assert {'shoal token', 'other <b>', '90%'} <= curves
    crossings, swaps = data['blocks'][0]['table']['rows'], data['blocks'][1]['table']['rows']
    assert crossings[1]['cells'] == ['other <b>', 'below the lowest rate']
    assert swaps[0]['cells'][1] == '0.125' and swaps[1]['cells'][1] == '2.500'
    assert 'http' not in page.replace('http://www.w3.org', '') and 'src=' not in page and 'href=' not in page
