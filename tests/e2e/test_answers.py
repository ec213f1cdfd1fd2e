"""The bundled models answer as the reference implementation does; see models/README.md."""
import concurrent.futures
import json

import pytest

from conftest import BUNDLED, MODELS


@pytest.mark.parametrize('model', BUNDLED)
def test_answers_agree_with_the_reference(client, model):
    rows = json.loads((MODELS / model / 'reference_answers.json').read_text())['greedy']

    def ask(row):
        answer = client.chat.completions.create(model=model, temperature=0, max_tokens=160, messages=[{'role': 'user', 'content': row['question']}])
        return answer.choices[0].message.content
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, rows))
    same = sum(answer == row['model_says'] for answer, row in zip(answers, rows))
    assert same >= 0.99 * len(rows), [(r['question'], a, r['model_says']) for a, r in zip(answers, rows) if a != r['model_says']][:5]


@pytest.mark.parametrize('model', BUNDLED)
def test_prompts_are_the_references_ids(server, model):
    from conftest import http
    for row in json.loads((MODELS / model / 'reference_answers.json').read_text())['greedy'][:50]:
        got = http(server.url + '/tokenize', {'model': model, 'messages': [{'role': 'user', 'content': row['question']}]})[2]
        assert got['tokens'] == row['prompt_ids'], row['question']
