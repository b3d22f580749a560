"""The recipes of docs/recipes.md: starts weir with them, and keeps those of conf/tests.

    tests/integration/recipe_book.py    writes the policies of conf/tests anew; run it after a change
"""

import os
import re

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PAGE = os.path.join(TOP, "docs", "recipes.md")
TESTED = os.path.join(TOP, "conf", "tests")

# What conf/tests has in place of secrets.
STAND_INS = (("  hash_key: ${WEIR_HASH_KEY}\n", "  hash_key: an example that is no secret\n"),
             ('"id:h:HASH"', '"id:h:0d33f5b2f470a3db5ef3fb61d72fe241"'))


def blocks(section, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)


def recipes():
    """Returns the common head of all recipes, and {heading: section}."""
    with open(PAGE, encoding="utf-8") as page:
        head, *rest = re.split(r"^### ", page.read(), flags=re.M)
    return blocks(head, "yaml")[0], {section.partition("\n")[0]: section for section in rest}


def whole_policy(heading):
    """Returns the policy of a recipe: the common head, and its own sections."""
    head, sections = recipes()
    recipe = blocks(sections[heading], "yaml")[0]
    for section in "upstreams:", "listen:":  # the section of the recipe replaces the common one
        if recipe.startswith(section) or "\n" + section in recipe:
            head = re.sub(rf"^{section}.*\n(?: .*\n)*", "", head, flags=re.M)
    return head + recipe


def file_name(heading):
    return re.sub(r"\W+", "-", heading.lower()).strip("-")


def tested_files():
    """Returns {file name: text} of the policies in conf/tests, and of the files that they name."""
    files = {}
    for heading, section in recipes()[1].items():
        policy = whole_policy(heading)
        for old, new in STAND_INS:
            policy = policy.replace(old, new)
        files[file_name(heading) + ".yaml"] = f'# The recipe "{heading}" of docs/recipes.md.\n' + policy
        for name, language, text in re.findall(r"^`([\w.]+)`:\n\n```(\w+)\n(.*?)^```$", section, re.M | re.S):
            files[name] = text
    return files


def weir_with_recipe(rig, heading, upstream=None, redis="5s", files=(), replace=()):
    """Starts weir with this recipe, with the addresses of the test and a long Redis timeout."""
    sections = recipes()[1]
    head = whole_policy(heading)
    for old, new in (("127.0.0.1:8080", "127.0.0.1:0"), ("127.0.0.1:9180", "127.0.0.1:0"),
                     ("127.0.0.1:6379", f'"{rig.redis().text}", timeout: {redis}'),
                     ("127.0.0.1:3000", f'"{(upstream or rig.upstream()).text}"')):
        assert old in head
        head = head.replace(old, new)
    for i, (name, language) in enumerate(files):
        rig.write(name, blocks(sections[heading], language)[i])
    for old, new in replace:
        assert old in head
        head = head.replace(old, new)
    return rig.weir(text=head + "log: { access: off }\n").wait_for_redis()


def write_tested_files():
    for name, text in tested_files().items():
        with open(os.path.join(TESTED, name), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    write_tested_files()
