"""Starts weir with the recipes of docs/recipes.md."""

import os
import re

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "recipes.md")


def blocks(section, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)


def recipes():
    """Returns the common head of all recipes, and {heading: section}."""
    with open(PAGE, encoding="utf-8") as page:
        head, *rest = re.split(r"^### ", page.read(), flags=re.M)
    return blocks(head, "yaml")[0], {section.partition("\n")[0]: section for section in rest}


def weir_with_recipe(rig, heading, upstream=None, redis="5s", files=(), replace=()):
    """Starts weir with this recipe, with the addresses of the test and a long Redis timeout."""
    head, sections = recipes()
    recipe = blocks(sections[heading], "yaml")[0]
    for section in "upstreams:", "listen:":  # the section of the recipe replaces the common one
        if recipe.startswith(section) or "\n" + section in recipe:
            head = re.sub(rf"^{section}.*\n(?: .*\n)*", "", head, flags=re.M)
    head += recipe
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
