"""Builds a kustomization without kustomize: the few features that deploy/kubernetes uses, and none besides."""

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

FEATURES = {
    *("apiVersion", "kind", "resources", "components", "configMapGenerator"),
    *("patches", "namespace", "images"),
}
# Lists that a patch does not replace but adds to, and what their entries are known by.
MERGED_BY = {"containers": "name", "volumes": "name", "env": "name", "ports": "port"}


def build(folder: Path) -> list[Object]:
    """Return the objects of a kustomization, the generated ones named after their content."""
    objects = _collect(folder, [])
    names = {
        (place(one), one["metadata"]["name"]): _name_with_hash(one) for one in objects if one.pop("generated", False)
    }
    for one in objects:
        if one["kind"] == "ConfigMap" and (key := (place(one), one["metadata"]["name"])) in names:
            one["metadata"]["name"] = names[key]
        for reference in config_map_references(one):
            reference["name"] = names.get((place(one), reference["name"]), reference["name"])
    return objects


def place(one: Object) -> str:
    """Return an object's namespace; empty for what has none."""
    return str(one["metadata"].get("namespace", ""))


def pod_of(one: Object) -> Object | None:
    """Return the pod an object describes, with its metadata, if it describes one."""
    if one["kind"] == "Pod":
        return one
    template: Object | None = one.get("spec", {}).get("template")
    return template


def config_map_references(one: Object) -> Iterator[Object]:
    """Find where an object's pod names a ConfigMap."""
    for value in _within(pod_of(one) or {}):
        for key in ("configMap", "configMapRef", "configMapKeyRef"):
            if key in value:
                yield value[key]


def _within(value: object) -> Iterator[Object]:
    """Yield every mapping inside a value."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _within(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _within(inner)


def _collect(folder: Path, objects: list[Object]) -> list[Object]:
    """Read a kustomization; a component changes the objects it is given, all else adds to them."""
    (content,) = _read(folder / "kustomization.yaml")
    if unknown := content.keys() - FEATURES:
        raise NotImplementedError(f"{folder}: {', '.join(sorted(unknown))}: this small builder does not know it")
    for name in content.get("resources", []):
        path = folder / name
        objects = objects + (_collect(path, []) if path.is_dir() else _read(path))
    for name in content.get("components", []):
        objects = _collect(folder / name, objects)
    objects = objects + [_generated(folder, one) for one in content.get("configMapGenerator", [])]
    for patch in content.get("patches", []):
        objects = _patched(objects, *_read(folder / patch["path"]))
    for one in objects:
        _settle(one, content.get("namespace"))
        for image in content.get("images", []):
            _set_image(one, image)
    return objects


def _read(path: Path) -> list[Object]:
    return list(yaml.safe_load_all(path.read_text()))


def _generated(folder: Path, generator: Object) -> Object:
    data = {}
    for name in generator.get("files", []):
        # As kustomize does: nothing is read from outside the kustomization's own folder.
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ValueError(f"{folder}: {name} is outside the folder")
        data[path.name] = path.read_text()
    data.update(literal.split("=", 1) for literal in generator.get("literals", []))
    name = {"name": generator["name"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data, "generated": True}


def _patched(objects: list[Object], patch: Object) -> list[Object]:
    wanted = (patch["kind"], patch["metadata"]["name"])
    found = [one for one in objects if (one["kind"], one["metadata"]["name"]) == wanted]
    if len(found) != 1:
        raise ValueError(f"a patch for {' '.join(wanted)} fits {len(found)} objects")
    return [_merged(one, patch) if one is found[0] else one for one in objects]


def _merged(old: Any, new: Any, key: str = "") -> Any:
    """Merge a patch into a value, as Kubernetes merges."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{name: _merged(old.get(name), value, name) for name, value in new.items()}}
    if isinstance(old, list) and (by := MERGED_BY.get(key)):
        patches = {one[by]: one for one in new}
        kept = [_merged(one, patches.pop(one[by], {})) for one in old]
        return [*patches.values(), *kept]
    return copy.deepcopy(new)


def _settle(one: Object, namespace: str | None) -> None:
    if namespace and one["kind"] == "Namespace":
        one["metadata"]["name"] = namespace
    elif namespace:
        one["metadata"]["namespace"] = namespace


def _set_image(one: Object, image: Object) -> None:
    spec = (pod_of(one) or {}).get("spec", {})
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        if container["image"] == image["name"]:
            container["image"] = f"{image['newName']}:{image['newTag']}"


def _name_with_hash(one: Object) -> str:
    """Return a name that changes with the content, so that pods are replaced when their settings change."""
    name = one["metadata"]["name"]
    content = {"data": one["data"], "kind": one["kind"], "name": ""}  # kustomize leaves the name out, too
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&":  # which Go writes this way
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    digits = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{name}-{digits.translate(str.maketrans('013ae', 'ghkmt'))}"
