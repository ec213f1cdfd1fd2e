"""Vectors and scores as users of the openai package and of raw HTTP see them, on a model that is made here and on the shared ones."""
import base64
import json
import math
import os
import pathlib
import struct

import openai
import pytest

from conftest import ROOT, Server, http

SHARED = ROOT.parent / 'shared' / 'models' / 'embeddings'
pytestmark = pytest.mark.skipif(not SHARED.exists(), reason='the shared models are not here')


@pytest.fixture(scope='module')
def embedder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('embedders')
    for model in SHARED.iterdir():
        if (model / 'config.json').exists():
            os.symlink(model.resolve(), folder / model.name)
    os.symlink((ROOT / 'models' / 'tiny-llama').resolve(), folder / 'tiny-llama')
    running = Server(models=folder)
    yield running
    running.stop()


def reference(name):
    return json.loads((SHARED / name / 'reference.json').read_text())


def plain(cases):
    return [case for case in cases if not case.get('prompt') and not case.get('prompt_name') and len(case['ids']) < 100]


@pytest.mark.parametrize('name', ['bert-mean', 'bert-cls', 'xlm-roberta', 'modernbert', 'qwen3-embedding'])
def test_vectors_are_those_of_the_reference_alone_and_in_any_batch(embedder, name):
    client, cases = embedder.client(), plain(reference(name)['cases'])
    together = client.embeddings.create(model=name, input=[case['text'] for case in cases], encoding_format='float')
    assert [item.index for item in together.data] == list(range(len(cases)))
    assert together.usage.prompt_tokens == sum(len(case['ids']) for case in cases)
    for case, item in zip(cases, together.data):
        assert max(abs(a - b) for a, b in zip(item.embedding, case['vector'])) <= 1e-5
        alone = client.embeddings.create(model=name, input=case['ids'], encoding_format='float').data[0].embedding
        assert alone == item.embedding
    coded = http(embedder.url + '/v1/embeddings', {'model': name, 'input': cases[0]['text'], 'encoding_format': 'base64'})[2]['data'][0]['embedding']
    raw = base64.b64decode(coded)
    assert list(struct.unpack(f'<{len(raw) // 4}f', raw)) == [struct.unpack('<f', struct.pack('<f', x))[0] for x in together.data[0].embedding]


def test_a_shorter_vector_is_the_beginning_of_the_long_one_at_length_one(embedder):
    client = embedder.client()
    whole = client.embeddings.create(model='bert-mean', input='a text', encoding_format='float').data[0].embedding
    short = client.embeddings.create(model='bert-mean', input='a text', dimensions=16, encoding_format='float').data[0].embedding
    norm = math.sqrt(sum(x * x for x in whole[:16]))
    assert len(short) == 16 and all(abs(a - b / norm) < 1e-6 for a, b in zip(short, whole))


def test_what_is_too_long_is_refused_unless_it_may_be_cut(embedder):
    long = 'word ' * 2000
    status, _, body = http(embedder.url + '/v1/embeddings', {'model': 'bert-mean', 'input': long})
    assert (status, body['error']['code']) == (400, 'context_length_exceeded')
    status, _, cut = http(embedder.url + '/v1/embeddings', {'model': 'bert-mean', 'input': long, 'truncate_prompt_tokens': -1})
    assert status == 200 and cut['usage']['prompt_tokens'] == reference('bert-mean')['max_seq_length']
    assert http(embedder.url + '/api/embed', {'model': 'bert-mean', 'input': long})[0] == 200
    assert http(embedder.url + '/api/embed', {'model': 'bert-mean', 'input': long, 'truncate': False})[0] == 400


def test_pairs_are_ranked_as_the_reference_ranks_them(embedder):
    cases = reference('xlm-roberta-rerank')['cases']
    query = cases[0]['query']
    group = [case for case in cases if case['query'] == query]
    documents = [case['document'] for case in group]
    status, _, ranked = http(embedder.url + '/v1/rerank', {'model': 'xlm-roberta-rerank', 'query': query, 'documents': documents, 'return_documents': True})
    scores = {item['index']: item['relevance_score'] for item in ranked['results']}
    assert status == 200 and all(abs(scores[i] - case['score']) <= 1e-5 for i, case in enumerate(group))
    assert [item['relevance_score'] for item in ranked['results']] == sorted(scores.values(), reverse=True)
    assert ranked['results'][0]['document']['text'] == documents[ranked['results'][0]['index']]
    assert len(http(embedder.url + '/v1/rerank', {'model': 'xlm-roberta-rerank', 'query': query, 'documents': documents, 'top_n': 1})[2]['results']) == 1
    scored = http(embedder.url + '/v1/score', {'model': 'xlm-roberta-rerank', 'text_1': query, 'text_2': documents})[2]
    assert [item['score'] for item in scored['data']] == [scores[i] for i in range(len(group))]


def test_a_generative_reranker_is_asked_for_yes_and_no(embedder):
    cases = reference('qwen3-reranker')['cases']
    for query in dict.fromkeys(case['query'] for case in cases):
        group = [case for case in cases if case['query'] == query]
        ranked = http(embedder.url + '/v1/rerank', {'model': 'qwen3-reranker', 'query': query, 'documents': [case['document'] for case in group]})[2]
        for item in ranked['results']:
            assert abs(item['relevance_score'] - group[item['index']]['score']) <= 1e-4


def test_each_model_is_used_for_what_it_does(embedder):
    client = embedder.client()
    with pytest.raises(openai.BadRequestError, match='makes embeddings'):
        client.chat.completions.create(model='bert-mean', messages=[{'role': 'user', 'content': 'x'}])
    with pytest.raises(openai.BadRequestError, match='generates text'):
        client.embeddings.create(model='tiny-llama', input='x')
    assert http(embedder.url + '/v1/rerank', {'model': 'bert-mean', 'query': 'x', 'documents': ['y']})[0] == 400
    assert client.chat.completions.create(model='tiny-llama', messages=[{'role': 'user', 'content': 'What is the capital of Denmark?'}], temperature=0).choices


@pytest.mark.parametrize('bad', [[], 3, None, [[]], [10**9], [1.5], {'text': 'x'}, ['x', 3]])
def test_bad_input_is_named_and_nothing_is_lost(embedder, bad):
    status, _, body = http(embedder.url + '/v1/embeddings', {'model': 'bert-mean', 'input': bad})
    assert status == 400 and body['error']['param'].startswith('input')
    assert http(embedder.url + '/readyz')[0] == 200


def test_ollamas_package_embeds(embedder):
    import ollama
    olla = ollama.Client(host=embedder.url)
    both = olla.embed(model='bert-mean', input=['one', 'two']).embeddings
    assert len(both) == 2 and olla.embed(model='bert-mean', input='two').embeddings[0] == both[1]
    assert olla.show('bert-mean').capabilities == ['embedding']
