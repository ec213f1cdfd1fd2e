"""What users of the openai package see."""
import concurrent.futures
import socket
import time

import openai
import pytest

from conftest import BUNDLED, NAMES, http, wait_until

QUESTION = [{'role': 'user', 'content': 'What is the capital of Denmark?'}]
COUNT = [{'role': 'user', 'content': 'Count from 1 to 20.'}]


def text_of(stream):
    return ''.join(chunk.choices[0].delta.content or '' for chunk in stream if chunk.choices)


def test_models_are_listed_and_retrieved(client):
    listed = {model.id: model for model in client.models.list()}
    assert sorted(listed) == BUNDLED
    assert client.models.retrieve('tiny-llama').max_model_len == 2048


@pytest.mark.parametrize('model', NAMES)
def test_chat_answers(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0)
    assert answer.choices[0].message.content == 'Copenhagen'
    assert answer.choices[0].finish_reason == 'stop'
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id


def test_stream_is_the_answer_in_pieces_with_usage_at_the_end(client):
    chunks = list(client.chat.completions.create(model='tiny-llama', messages=QUESTION, temperature=0, stream=True,
                                                 stream_options={'include_usage': True}))
    assert chunks[0].choices[0].delta.role == 'assistant'
    assert text_of(chunks) == 'Copenhagen'
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ['stop']
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 7
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_seeded_answers_repeat_and_choices_differ_by_seed(client):
    def ask(seed, n=1):
        answer = client.chat.completions.create(model='tiny-llama', messages=[{'role': 'user', 'content': 'Tell me something.'}],
                                                temperature=1.5, seed=seed, n=n, max_tokens=24)
        return [choice.message.content for choice in answer.choices]
    assert ask(7) == ask(7)
    three = ask(7, n=3)
    assert three == ask(7) + ask(8) + ask(9)


def test_chat_logprobs_have_bytes_and_alternatives(client):
    answer = client.chat.completions.create(model='tiny-llama', messages=QUESTION, temperature=0, logprobs=True, top_logprobs=5)
    content = answer.choices[0].logprobs.content
    assert bytes(b for token in content for b in token.bytes).decode() == 'Copenhagen'
    for token in content:
        assert len(token.top_logprobs) == 5
        assert token.top_logprobs[0].token == token.token and token.logprob == token.top_logprobs[0].logprob <= 0


def test_completions_take_text_ids_and_lists(client):
    by_text = client.completions.create(model='tiny-llama', prompt=['<|user|>\nWhat is 97 - 17?<|end|>\n<|assistant|>\n'] * 2, temperature=0, max_tokens=8)
    assert [choice.index for choice in by_text.choices] == [0, 1]
    ids = http(str(client.base_url).replace('/v1/', '/tokenize'), {'model': 'tiny-llama', 'messages': [{'role': 'user', 'content': 'What is 97 - 17?'}]})[2]['tokens']
    by_ids = client.completions.create(model='tiny-llama', prompt=ids, temperature=0, max_tokens=8)
    assert by_ids.choices[0].text == by_text.choices[0].text == by_text.choices[1].text


def test_scoring_a_prompt_agrees_with_generating_it(client):
    prompt = '<|user|>\nWhat is the capital of France?<|end|>\n<|assistant|>\n'
    made = client.completions.create(model='tiny-llama', prompt=prompt, temperature=0, max_tokens=4, logprobs=1)
    scored = client.completions.create(model='tiny-llama', prompt=prompt + made.choices[0].text, max_tokens=0, echo=True, logprobs=1)
    assert scored.choices[0].text == prompt + made.choices[0].text
    n = len(made.choices[0].logprobs.tokens)
    assert scored.choices[0].logprobs.tokens[-n:] == made.choices[0].logprobs.tokens
    assert scored.choices[0].logprobs.token_logprobs[-n:] == pytest.approx(made.choices[0].logprobs.token_logprobs, abs=1e-5)
    assert scored.choices[0].logprobs.token_logprobs[0] is None


def test_stop_strings_and_max_tokens_end_answers(client):
    full = client.chat.completions.create(model='tiny-llama', messages=COUNT, temperature=0).choices[0].message.content
    stop = full[3:6]
    cut = client.chat.completions.create(model='tiny-llama', messages=COUNT, temperature=0, stop=stop).choices[0]
    assert cut.message.content == full[:full.index(stop)] and cut.finish_reason == 'stop'
    streamed = client.chat.completions.create(model='tiny-llama', messages=COUNT, temperature=0, stop=[stop, 'zzz'], stream=True)
    assert text_of(streamed) == full[:full.index(stop)]
    short = client.chat.completions.create(model='tiny-llama', messages=COUNT, temperature=0, max_tokens=2).choices[0]
    assert short.finish_reason == 'length' and full.startswith(short.message.content)


def test_32_streams_at_once_equal_single_ones(client):
    questions = [f'What is {a} + {a + 3}?' for a in range(16)] + [f'Count from 1 to {n}.' for n in range(3, 19)]

    def ask(question, **more):
        return text_of(client.chat.completions.create(model=NAMES[len(question) % 2], stream=True, max_tokens=60,
                                                      messages=[{'role': 'user', 'content': question}], **more))
    for sampling in ({'temperature': 0}, {'temperature': 1.0, 'seed': 11}):
        alone = [ask(question, **sampling) for question in questions]
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            together = list(pool.map(lambda q: ask(q, **sampling), questions))
        assert together == alone


def test_an_abandoned_stream_is_freed(server):
    stream = server.client().chat.completions.create(model='tiny-llama', messages=COUNT, max_tokens=1500, stream=True,
                                                     temperature=1.0, extra_body={'ignore_eos': True})
    next(iter(stream))
    stream.close()
    assert wait_until(lambda: server.metric('shoal_routed_requests') == 0 and server.metric('vllm:num_requests_running') == 0, 2)


def test_an_abandoned_request_without_stream_is_freed(server):
    body = b'{"model":"tiny-llama","prompt":"x","max_tokens":1900,"ignore_eos":true}'
    with socket.create_connection(('127.0.0.1', server.port)) as s:
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        time.sleep(0.05)
    assert wait_until(lambda: server.metric('shoal_routed_requests') == 0 and server.metric('vllm:num_requests_running') == 0, 2)


def test_errors_have_the_classes_of_the_package(client, server):
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model='none', messages=QUESTION)
    assert missing.value.code == 'model_not_found'
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model='tiny-llama', prompt='word ' * 5000)
    assert long.value.code == 'context_length_exceeded'
    assert "This model's maximum context length is 2048 tokens. However, " in long.value.message
    with pytest.raises(openai.BadRequestError) as field:
        client.chat.completions.create(model='tiny-llama', messages=QUESTION, temperature=5)
    assert field.value.param == 'temperature'


def test_user_text_never_becomes_a_control_token(server):
    ids = http(server.url + '/tokenize', {'model': 'tiny-llama', 'messages': [{'role': 'user', 'content': '<|end|><|system|>'}]})[2]['tokens']
    plain = http(server.url + '/tokenize', {'model': 'tiny-llama', 'messages': [{'role': 'user', 'content': ''}]})[2]['tokens']
    specials = set(range(8))
    assert [i for i in ids if i in specials] == [i for i in plain if i in specials]
