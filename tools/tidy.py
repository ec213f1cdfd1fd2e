#!/usr/bin/env python3
"""tidy.py [--build DIR] [--update]: the rules of the house that a compiler does not check. Run as a test.

Include direction and circles, who may ask for the time or the environment, dead headers, sources in no target, banned words with
what to write instead, lengths of files and functions, fields and methods of classes (tools/tidy_allow.json holds the
exceptions, which may only shrink; --update rewrites it), absolute paths of a machine, links and names of files in
documents.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ALLOW = ROOT / 'tools' / 'tidy_allow.json'

FILE_LINES_MAX = 450
TEST_LINES_MAX = 900
FUNCTION_LINES_MAX = 45
CLASS_FIELDS_MAX = 25   # beyond either a class is two rooms: what counts is how much state a line may touch
CLASS_METHODS_MAX = 40

CLOCK_LAYERS = {'base', 'device', 'host', 'gateway', 'loadgen', 'cluster', 'transport_grpc', 'transport_ucx', 'experts', 'apps', 'bench', 'tests'}
ENVIRONMENT_LAYERS = {'apps'}

# (what, where, pattern, what to write instead); patterns are matched on code without comments and string contents,
# except those marked 'text', which are matched on the whole line.
CODE = r'\.(cc|h|cu)$'
ANY = r'\.(cc|h|cu|py|sh|md|txt|cmake|yaml|json|proto)$|^bootstrap$|^\.ci/run$'
BANNED = [
    ('text', ANY, r'\b(TO' r'DO|FIX' r'ME|XX' r'X|HA' r'CK)\b', 'finish it now, or open an issue'),
    ('code', CODE, r'\bnew\s+[A-Za-z_]', 'std::make_unique, or a container'),
    ('code', CODE, r'\bdelete\s+[A-Za-z_]|\bdelete\[\]', 'an owner whose destructor does it'),
    ('code', CODE, r'\bstd::regex\b', 'PCRE2 (text/tokenizer/pcre_regex.h)'),
    ('code', CODE, r'(?<![A-Za-z_])assert\s*\(', 'CHECK of base/check.h'),
    ('code', CODE, r'\busing namespace std\b', 'std:: where it is used'),
    ('code', CODE, r'\bdynamic_cast\b', 'a virtual method or a variant'),
    ('code', CODE, r'\b(sprintf|strcpy|strcat|gets)\s*\(', 'absl::StrFormat, std::string'),
    ('text', ANY, r'(^|[^A-Za-z0-9_.])/(w[o]rk|home|root|Users|mnt)/', 'a path relative to the project'),
]
NEW_IS_OWNED = re.compile(r'(unique|shared)_ptr<.*\bnew\s')


def tracked_files():
    out = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], cwd=ROOT, capture_output=True, text=True)
    if out.returncode == 0 and out.stdout:
        names = out.stdout.splitlines()
    else:  # an unpacked archive
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob('*') if p.is_file()]
    return sorted(n for n in set(names) if not n.startswith('build/') and (ROOT / n).is_file())


def read(name):
    return (ROOT / name).read_text(encoding='utf-8', errors='replace')


def code_only(line):
    """The line without what is in quotes and without a comment to its end."""
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    line = re.sub(r"'(\\.|[^'\\])'", "' '", line)
    return re.sub(r'//.*', '', line)


def layer_deps():
    """name -> (deps, test deps) of every shoal_layer() in src/CMakeLists.txt."""
    layers = {}
    for call in re.findall(r'shoal_layer\((.*?)\)', re.sub(r'#.*', '', read('src/CMakeLists.txt')), re.S):
        words, key, parts = call.split(), None, {}
        for word in words:
            if word in ('NAME', 'DEPS', 'LIBS', 'TEST_DEPS', 'PURE', 'GUARDED'):
                key = word
                parts[key] = []
            elif key:
                parts[key].append(word)
        layers[parts['NAME'][0]] = (set(parts.get('DEPS', [])), set(parts.get('TEST_DEPS', [])))
    return layers


def layer_of(name, layers):
    """The layer of a file: of the folders of src/ that it is in, the innermost that is a layer, or else the outermost."""
    parts = pathlib.PurePosixPath(name).parts
    if parts[0] != 'src' or len(parts) < 3:
        return parts[0]
    folders = ['/'.join(parts[1:end]) for end in range(len(parts) - 1, 1, -1)]
    return next((folder for folder in folders if folder in layers), parts[1])


def check_includes(files, complain):
    layers = layer_deps()
    folders = {layer_of(f, layers) for f in files if f.startswith('src/')}
    others = {str(pathlib.PurePosixPath(f).parent)[4:] for f in files if re.match(r'src/.+/CMakeLists\.txt$', f)}
    included = set()
    for name in files:
        if not re.search(CODE, name):
            continue
        layer = layer_of(name, layers)
        if name.startswith('src/') and layer not in layers and layer not in others:
            complain(name, 1, f'{layer} is no layer: shoal_layer() in src/CMakeLists.txt declares them')
        for number, line in enumerate(read(name).splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            included.add('src/' + match[1])
            target = layer_of('src/' + match[1], layers)
            if target in folders and name.startswith('src/') and layer in layers and target != layer:
                deps, test_deps = layers[layer]
                if target not in (deps | test_deps if name.endswith('_test.cc') else deps):
                    complain(name, number, f'{layer} may not include {target}; its DEPS are {" ".join(sorted(deps)) or "none"}')
            if match[1] == 'base/clock.h' and layer not in CLOCK_LAYERS and not name.endswith('_test.cc'):
                complain(name, number, 'the time is handed down as `now`; only ' + ' '.join(sorted(CLOCK_LAYERS)) + ' may ask for it')
    for name in files:
        if name.startswith('src/') and name.endswith('.h') and name not in included:
            complain(name, 1, 'a header that nothing includes; use it or remove it')


def check_circles(files, complain):
    """Headers that include each other are one header."""
    graph = {name: ['src/' + h for h in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(name), flags=re.M)]
             for name in files if name.startswith('src/') and name.endswith('.h')}
    done = set()

    def visit(name, path):
        if name in path:
            return complain(name, 1, 'includes itself by way of ' + ', '.join(path[path.index(name) + 1:]))
        if name in done or name not in graph:
            return
        for header in graph[name]:
            visit(header, path + [name])
        done.add(name)

    for name in graph:
        visit(name, [])


def check_words(files, complain):
    layers = layer_deps()
    for name in files:
        if not re.search(ANY, name) or name in ('tools/tidy_allow.json', 'LICENSE') or name.startswith('models/'):
            continue
        layer, source = layer_of(name, layers), name.startswith('src/')
        for number, line in enumerate(read(name).splitlines(), 1):
            stripped = code_only(line)
            for kind, where, pattern, instead in BANNED:
                if not re.search(where, name) or not re.search(pattern, line if kind == 'text' else stripped):
                    continue
                if pattern.startswith(r'\bnew') and NEW_IS_OWNED.search(stripped):
                    continue
                if pattern.startswith(r'\bdelete') and re.search(r'=\s*delete', stripped):
                    continue
                complain(name, number, f'"{re.search(pattern, line).group(0).strip() if re.search(pattern, line) else pattern}" is not written here: {instead}')
            for_tests = name.endswith('_test.cc') or name.rsplit('/', 1)[-1].startswith('test_')
            if source and re.search(r'\b(secure_)?getenv\s*\(', stripped) and layer not in ENVIRONMENT_LAYERS and not for_tests:
                complain(name, number, 'the environment is read in apps only; take a parameter')


def functions_of(lines):
    """(name, first line, length) of each function body; relies on the formatting of .clang-format."""
    for indent in ('', '  '):
        start = None
        for i, line in enumerate(lines):
            opens = re.match(indent + r'[A-Za-z_~].*[^=]\{$|' + indent + r'    .*\) (const |override |noexcept )*\{$', line)
            if opens and not re.match(r'\s*(namespace|class|struct|enum|union|extern|do|if|for|while|switch|else)\b', line):
                head = line
                back = i
                while back > 0 and not re.match(indent + r'[A-Za-z_~]', lines[back]):
                    back -= 1
                    head = lines[back] + head
                found = re.search(r'([A-Za-z_~][\w:~<>]*)\s*\(', head)
                start = (found[1], back + 1) if found and not re.match(r'\s*(namespace|class|struct|enum)\b', lines[back]) else None
            elif start and re.match(indent + r'\}', line):
                yield start[0], start[1], i + 2 - start[1]
                start = None
            elif line.startswith('}'):
                start = None


def bare(text):
    """C++ without comments, the contents of quotes and preprocessor lines, but with its newlines."""
    text = re.sub(r'^\s*#(.*\\\n)*.*$', '', text, flags=re.M)
    text = re.sub(r'/\*.*?\*/', lambda m: '\n' * m[0].count('\n'), text, flags=re.S)
    return '\n'.join(code_only(line) for line in text.splitlines())


def members_of(body):
    """The declarations and definitions directly within a class, each as one line without what is in its braces."""
    depth, statement = 0, ''
    for i, c in enumerate(body):
        if c == '{':
            depth += 1
        if depth == 0:
            statement += c
        if c == '}':
            depth -= 1
            if depth == 0 and not re.match(r'\s*[;,=]', body[i + 1:]) and '(' in statement:  # the body of a method
                yield ' '.join(statement.split())
                statement = ''
        elif c == ';' and depth == 0:
            yield ' '.join(statement.split())
            statement = ''


def without_template_arguments(text):
    while True:
        shorter = re.sub(r'<[^<>]*>', '', text)
        if shorter == text:
            return text
        text = shorter


def classes_of(text):
    """(name, line, fields, methods) of each class and struct, nested ones apart; statics and friends do not count."""
    text = bare(text)
    for match in re.finditer(r'^[ ]*(?:class|struct)\s+([A-Za-z_]\w*)[^;{}()=]*\{', text, flags=re.M):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {'{': 1, '}': -1}.get(text[end], 0)
            end += 1
        fields = methods = 0
        for member in members_of(text[match.end():end - 1]):
            member = re.sub(r'^((public|private|protected)\s*:\s*)+', '', member)
            if not member.strip(' ;') or re.match(r'(using|friend|static|typedef|enum|class|struct|template\s*<[^>]*>\s*(class|struct|using))\b', member):
                continue
            if re.search(r'=\s*(delete|default)\s*;?$', member):
                continue
            if '(' in without_template_arguments(member).split('=')[0]:
                methods += 1
            else:
                fields += 1 + without_template_arguments(member).count(',')
        yield match[1], text.count('\n', 0, match.start()) + 1, fields, methods


def check_classes(files, complain, allow, found):
    for name in files:
        if not re.match(r'src/.*\.(h|cc)$', name) or name.endswith('_test.cc') or '/test_' in name:
            continue
        for one, line, fields, methods in classes_of(read(name)):
            if methods == 0:  # a table of values
                continue
            for what, count, limit in (('fields', fields, CLASS_FIELDS_MAX), ('methods', methods, CLASS_METHODS_MAX)):
                key = f'{name}:{one}'
                if count <= limit:
                    continue
                found[what][key] = count
                allowed = allow.get(what, {}).get(key, limit)
                if count > allowed:
                    complain(name, line, f'{one} has {count} {what}; the limit is {allowed}: it is two rooms with a door')


def check_sizes(files, complain, update):
    allow = json.loads(ALLOW.read_text()) if ALLOW.exists() else {}
    found = {'files': {}, 'functions': {}, 'fields': {}, 'methods': {}}
    check_lengths(files, complain, allow, found)
    check_classes(files, complain, allow, found)
    if update:
        ALLOW.write_text(json.dumps(found, indent=1, sort_keys=True) + '\n')


def check_lengths(files, complain, allow, found):
    for name in files:
        if not re.search(r'^(src|bench|tests|tools)/.*\.(cc|h|cu|py)$', name):
            continue
        lines = read(name).splitlines()
        test = name.endswith('_test.cc') or name.startswith('tests/') or 'test_support' in name
        limit = TEST_LINES_MAX if test else FILE_LINES_MAX
        if len(lines) > limit:
            found['files'][name] = len(lines)
            if len(lines) > allow.get('files', {}).get(name, limit):
                complain(name, 1, f'{len(lines)} lines; the limit is {allow.get("files", {}).get(name, limit)}: split it along a real seam')
        if test or not re.search(CODE, name):
            continue
        for function, line, length in functions_of(lines):
            key = f'{name}:{function}'
            if length > FUNCTION_LINES_MAX:
                found['functions'][key] = max(length, found['functions'].get(key, 0))
                if length > allow.get('functions', {}).get(key, FUNCTION_LINES_MAX):
                    complain(name, line, f'{function} has {length} lines; the limit is {allow.get("functions", {}).get(key, FUNCTION_LINES_MAX)}')


def check_targets(files, build, complain):
    database = pathlib.Path(build) / 'compile_commands.json'
    if not database.exists():
        return complain(str(database), 1, 'missing: configure the build first')
    compiled = {str(pathlib.Path(entry['file']).resolve()) for entry in json.loads(database.read_text())}
    built = {folder for folder in ('src', 'bench', 'tests') if any(c.startswith(f'{ROOT}/{folder}/') for c in compiled)}
    optional = {str(pathlib.PurePosixPath(f).parent) for f in files if re.match(r'src/\w+/.+/CMakeLists\.txt$', f)}
    layers = {f'src/{layer}' for layer in re.findall(r'shoal_layer\(NAME ([\w/]+)', read('src/CMakeLists.txt'))}
    optional |= {layer for layer in layers if not any(c.startswith(f'{ROOT}/{layer}/') for c in compiled)}  # not asked for
    for name in files:
        if not re.match(r'(src|bench|tests)/.*\.cc$', name) or name.endswith('_fuzz.cc') or name.split('/')[0] not in built:
            continue
        if str(ROOT / name) in compiled or any(name.startswith(folder + '/') for folder in optional):
            continue
        complain(name, 1, 'a source in no target; build it or remove it')


def check_links(files, complain):
    for name in files:
        if not name.endswith('.md'):
            continue
        fenced = False
        for number, line in enumerate(read(name).splitlines(), 1):
            fenced ^= line.lstrip().startswith('```')
            for target in [] if fenced else re.findall(r'\]\(([^)\s]+)\)', line):
                path = target.split('#')[0]
                if path and not re.match(r'[a-z]+:', path) and not (ROOT / name).parent.joinpath(path).exists():
                    complain(name, number, f'the link {target} leads nowhere')
            for path in [] if fenced else re.findall(r'`((?:src|tests|tools|docs|cmake)/[\w./-]+)`', line):
                if 'NAME' not in path and not (ROOT / path).exists():
                    complain(name, number, f'there is no {path}')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--build', help='build folder whose compile_commands.json is checked for sources in no target')
    parser.add_argument('--update', action='store_true', help='rewrite tools/tidy_allow.json from what is there')
    arguments = parser.parse_args()
    problems = []

    def complain(name, line, text):
        problems.append(f'{name}:{line}: {text}')

    files = tracked_files()
    check_includes(files, complain)
    check_circles(files, complain)
    check_words(files, complain)
    check_sizes(files, complain, arguments.update)
    check_links(files, complain)
    if arguments.build:
        check_targets(files, arguments.build, complain)
    print('\n'.join(problems))
    print(f'{len(problems)} problems in {len(files)} files')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
