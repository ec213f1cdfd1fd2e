"""The pages of bench, simulate and plan, as a browser draws them (where there is one)."""
import re
import shutil
import subprocess

import pytest
from conftest import BINARY
from fake_openai import fake_openai

BROWSER = next((path for path in map(shutil.which, ('chromium', 'google-chrome', 'chrome')) if path), None)
SMALL = ['--models', '4', '--request-rate', '1', '--duration', '10', '--output-len', '40']


def drawn(page, width):
    """The page's elements after its script has run in a window of that width."""
    command = [BROWSER, '--headless=new', '--no-sandbox', '--disable-gpu', f'--window-size={width},1000', '--virtual-time-budget=5000', '--dump-dom', f'file://{page}']
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture(scope='module')
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp('pages')
    with fake_openai() as server:
        runs = {'bench': ['--base-url', server.url, '--num-prompts', '20', '--random-output-len', '5', '--request-rate', '50'],
                'simulate': ['--devices', '2xH800', '--policy', 'token,request', *SMALL], 'plan': ['--kinds', 'H800,A100', '--tensor-max', '1', *SMALL]}
        for verb, flags in runs.items():
            subprocess.run([str(BINARY), verb, *flags, '--report', str(folder / f'{verb}.html')], check=True, capture_output=True, timeout=120)
    return folder


@pytest.mark.skipif(BROWSER is None, reason='no Chromium')
@pytest.mark.parametrize('width', [1200, 500])
@pytest.mark.parametrize('verb, charts', [('bench', 12), ('simulate', 6), ('plan', 2)])
def test_every_chart_is_drawn_within_the_window(pages, verb, charts, width):
    page = drawn(pages / f'{verb}.html', width)
    boxes = re.findall(r'<svg viewBox="0 0 (\d+) (\d+)"', page)
    assert len(boxes) == charts and page.count('class="frame"') == charts
    assert all(width / 3 < int(wide) <= width for wide, _ in boxes), boxes
    assert 'NaN' not in re.sub(r'<script.*?</script>', '', page, flags=re.S) and 'undefined' not in re.sub(r'<script.*?</script>', '', page, flags=re.S)
