"""HTTP/2 as the official client and h2, an implementation that is not ours, speak it."""
import asyncio

import httpx2
import openai
import pytest

QUESTION = [{'role': 'user', 'content': 'What is the capital of Denmark?'}]


@pytest.fixture(scope='module')
def two(server):
    """In clear text, a client that knows: http1=False."""
    with openai.OpenAI(base_url=server.url + '/v1', api_key='none', max_retries=0, timeout=120,
                       http_client=httpx2.Client(http2=True, http1=False)) as client:
        yield client


def streamed(client):
    chunks = client.chat.completions.create(model='tiny-llama', messages=QUESTION, temperature=0, stream=True)
    return ''.join(chunk.choices[0].delta.content or '' for chunk in chunks if chunk.choices)


def test_answers_come_whole_and_streamed(two):
    answer = two.chat.completions.with_raw_response.create(model='tiny-llama', messages=QUESTION, temperature=0)
    assert answer.http_response.http_version == 'HTTP/2'
    assert answer.parse().choices[0].message.content == 'Copenhagen'
    assert streamed(two) == 'Copenhagen'


def test_errors_are_the_same(two):
    with pytest.raises(openai.NotFoundError):
        two.models.retrieve('nothing')
    with pytest.raises(openai.BadRequestError):
        two.chat.completions.create(model='tiny-llama', messages=[])


def test_twenty_streams_share_one_connection(server):
    async def ask(client):
        chunks = await client.chat.completions.create(model='tiny-llama', messages=QUESTION, temperature=0, stream=True)
        return ''.join([chunk.choices[0].delta.content or '' async for chunk in chunks if chunk.choices])

    async def ask_all():
        http_client = httpx2.AsyncClient(http2=True, http1=False, limits=httpx2.Limits(max_connections=1))
        async with openai.AsyncOpenAI(base_url=server.url + '/v1', api_key='none', max_retries=0, timeout=120, http_client=http_client) as client:
            return await asyncio.gather(*(ask(client) for _ in range(20)))

    assert asyncio.run(ask_all()) == ['Copenhagen'] * 20


def test_a_stream_that_is_given_up_leaves_the_others_alone(two):
    endless = two.completions.create(model='tiny-llama', prompt='Count', max_tokens=1500, stream=True, extra_body={'ignore_eos': True})
    next(iter(endless))
    endless.close()
    assert streamed(two) == 'Copenhagen'


def test_a_long_body_comes_through_its_windows(two):
    tokens = two.post('/../tokenize', body={'model': 'tiny-llama', 'prompt': 'Copenhagen ' * 100_000}, cast_to=object)
    assert tokens['count'] > 100_000
