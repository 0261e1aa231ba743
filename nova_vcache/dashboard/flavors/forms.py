# SPDX-License-Identifier: Apache-2.0
"""The form of a flavor: one field for each key of the schema."""

from typing import Any

from django.forms import Field
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, forms, messages
from openstack_dashboard.api import nova

from nova_vcache import extra_specs
from nova_vcache.extra_specs import KEYS, PREFIX, InvalidExtraSpecs, Key, Kind
from nova_vcache.placement import plan

_DEFAULT = ""


class EditFlavor(forms.SelfHandlingForm):
    """Sets and deletes keys, and changes the Placement keys that belong to them."""

    id = forms.CharField(widget=forms.HiddenInput())

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        for key in KEYS:
            self.fields[key.name] = _field(key)
        self._plan: plan.Plan | None = None

    def clean(self) -> dict[str, Any]:
        """Check all values together with the other keys of the flavor."""
        data: dict[str, Any] = super().clean()
        if self.errors:
            return data
        changes = {key.key: data[key.name] or None for key in KEYS}
        try:
            self._plan = plan.make(_specs(self.request, data["id"]), changes)
        except InvalidExtraSpecs as error:
            for problem in error.problems:
                name = problem.key.removeprefix(PREFIX)
                self.add_error(name if name in self.fields else None,
                               _("%(value)s is not allowed, must be %(allowed)s") % {
                                   "value": problem.value, "allowed": problem.allowed})
        return data

    def handle(self, request: HttpRequest, data: dict[str, Any]) -> bool:
        """Change the flavor. Deletions come last, so that Placement never reserves too little."""
        assert self._plan is not None  # noqa: S101 # the form is valid
        try:
            nova.flavor_extra_set(request, data["id"], self._plan.values)
            nova.flavor_extra_delete(request, data["id"], self._plan.gone)
        except Exception:
            exceptions.handle(request, _("Unable to change the flavor."))
            return False
        messages.success(request, _("The flavor was changed. Instances that exist keep the keys "
                                    "with which they were created until they are resized."))
        return True


def _specs(request: HttpRequest, flavor: str) -> dict[str, str]:
    return dict(nova.flavor_get_extras(request, flavor, raw=True))


def initial(request: HttpRequest, flavor: str) -> dict[str, Any]:
    """Return the values of the form for a flavor."""
    found = _specs(request, flavor)
    return {"id": flavor, **{key.name: _text(key, found.get(key.key)) for key in KEYS}}


def _text(key: Key, text: str | None) -> str:
    """Return a value as the form has it: of the words for a boolean only two."""
    if text is None:
        return _DEFAULT
    if key.kind is Kind.BOOLEAN:
        try:
            return str(getattr(extra_specs.parse({key.key: text}), key.name)).lower()
        except InvalidExtraSpecs:
            return _DEFAULT
    return text


def _field(key: Key) -> Field:
    """Return the field of a key. plan.make checks the value, so all fields have texts."""
    text = _("%(doc)s Allowed: %(allowed)s.") % {"doc": key.doc, "allowed": key.allowed}
    common: dict[str, Any] = {"label": key.key, "required": False, "help_text": text}
    default = _("Default: %s") % _shown(key.default)
    if key.kind is Kind.BOOLEAN:
        return forms.ChoiceField(
            choices=[(_DEFAULT, default), ("true", _("Yes")), ("false", _("No"))], **common)
    if key.choices is not None:
        return forms.ChoiceField(
            choices=[(_DEFAULT, default), *((one.value, one.value) for one in key.choices)],
            **common)
    return forms.CharField(max_length=32, widget=forms.TextInput(attrs={
        "inputmode": "decimal", "placeholder": default}), **common)


def _shown(default: object) -> Any:
    if isinstance(default, bool):
        return _("Yes") if default else _("No")
    return _("unset") if default is None else str(default)
