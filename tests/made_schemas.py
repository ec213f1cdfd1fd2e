"""JSON schemas at random, for the oracles: `whole(rng)` makes one."""

NAMES = ['a', 'b', 'name', 'é', 'x y', 'quote"', 'back\\', '', 'ab', 'abc']
PATTERNS = ['^[a-c]+$', 'b\\d', '^(foo|ba[rz])?$', '^\\w{1,4}-\\d{2}$', '^[^"x]{2,5}$', '^.{3}$', '^a|b$', '^\\S+@\\S+$', '^"\\\\?$']
FORMATS = ['date', 'time', 'date-time', 'uuid', 'ipv4', 'ipv6', 'email', 'hostname']


def bounds(rng, schema, low_key, high_key, low, high):
    a, b = sorted((rng.randint(low, high), rng.randint(low, high)))
    if rng.random() < 0.6: schema[low_key] = a
    if rng.random() < 0.6: schema[high_key] = b
    return schema


def number(rng, kind):
    schema = {'type': kind}
    scale = rng.choice([1, 1, 10, 1000]) if kind == 'integer' else rng.choice([0.01, 0.5, 1, 100.25])
    a, b = sorted((rng.randint(-50, 50) * scale, rng.randint(-50, 50) * scale))
    b += 2 * scale
    if rng.random() < 0.7: schema[rng.choice(['minimum', 'exclusiveMinimum'])] = a
    if rng.random() < 0.7: schema[rng.choice(['maximum', 'exclusiveMaximum'])] = b
    return schema


def string(rng):
    pick = rng.random()
    if pick < 0.3: return {'type': 'string', 'pattern': rng.choice(PATTERNS)}
    if pick < 0.5: return {'type': 'string', 'format': rng.choice(FORMATS)}
    return bounds(rng, {'type': 'string'}, 'minLength', 'maxLength', 0, 12)


def obj(rng, depth):
    names = rng.sample(NAMES, rng.randint(0, 4))
    schema = {'type': 'object', 'properties': {n: make(rng, depth + 1) for n in names}}
    if names: schema['required'] = rng.sample(names, rng.randint(0, len(names)))
    if rng.random() < 0.3: schema['additionalProperties'] = rng.choice([False, True, {'type': 'integer'}])
    if not names and rng.random() < 0.5:
        schema = bounds(rng, {'type': 'object', 'additionalProperties': make(rng, depth + 1)}, 'minProperties', 'maxProperties', 0, 1)
    return schema


def array(rng, depth):
    schema = bounds(rng, {'type': 'array', 'items': make(rng, depth + 1)}, 'minItems', 'maxItems', 0, 4)
    if rng.random() < 0.3:
        schema = {'type': 'array', 'prefixItems': [make(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
        if rng.random() < 0.5: schema['items'] = rng.choice([False, {'type': 'null'}])
    return schema


def make(rng, depth=0):
    kinds = ['string', 'integer', 'number', 'boolean', 'null', 'enum', 'types']
    if depth < 3: kinds += ['object', 'array'] * 2 + ['anyOf', 'allOf', 'ref']
    kind = rng.choice(kinds if depth else ['object', 'array', 'anyOf', 'allOf'])
    if kind == 'string': return string(rng)
    if kind in ('integer', 'number'): return number(rng, kind)
    if kind == 'enum': return {'enum': rng.sample(['x', 'é"\\', 1, 2.5, None, True, {'k': [1]}, []], rng.randint(1, 4))}
    if kind == 'types': return {'type': rng.sample(['string', 'integer', 'null', 'boolean'], 2)}
    if kind == 'object': return obj(rng, depth)
    if kind == 'array': return array(rng, depth)
    if kind == 'anyOf': return {'anyOf': [make(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
    if kind == 'allOf': return {'allOf': [obj(rng, depth + 1), {'type': 'object', 'required': [rng.choice(NAMES)]}]}
    if kind == 'ref': return {'$ref': '#/$defs/tree'}
    return {'type': kind}


def whole(rng):
    schema = make(rng)
    schema['$defs'] = {'tree': {'type': 'object', 'properties': {'v': {'type': 'integer'}, 'next': {'anyOf': [{'type': 'null'}, {'$ref': '#/$defs/tree'}]}},
                                'required': ['v']}}
    return schema
