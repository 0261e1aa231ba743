# SPDX-License-Identifier: Apache-2.0
"""The panel of flavors: the form writes what openstack vcache flavor set does."""

from types import SimpleNamespace
from typing import Any

from django.urls import reverse
from openstack_dashboard.api import nova
from openstack_dashboard.test import helpers

from nova_vcache.extra_specs import KEYS
from nova_vcache.placement.flavor import disagreements
from tests.horizon.panels.base import EVIL, Panels

INDEX = reverse("horizon:admin:vcache_flavors:index")
EDIT = reverse("horizon:admin:vcache_flavors:edit", args=["f1"])
GOOD = {"vcache:mode": "writeback", "vcache:min_mb": "5", "resources:CUSTOM_VCACHE_MB": "5",
        "resources:CUSTOM_VCACHE_VTAG": "1", "hw:cpu_policy": "shared"}


class Index(Panels):
    """The list."""

    @helpers.create_mocks({nova: ["flavor_list"]})
    def test_keys_and_problems(self) -> None:
        self.mock_flavor_list.return_value = [
            SimpleNamespace(id="f1", name="good", extra_specs=GOOD),
            SimpleNamespace(id="f2", name="bad", extra_specs={"vcache:weight": EVIL}),
            SimpleNamespace(id="f3", name="half", extra_specs={"vcache:min_mb": "5",
                                                              "vcache:mode": "writeback"})]
        page = self.page(INDEX)
        self.has(page, "vcache:mode = writeback", "resources:CUSTOM_VCACHE_VTAG = 1", EDIT,
                 "must be an integer from 1 to 1000",
                 "vcache:min_mb and vcache:vssd_mb are guaranteed only by an allocation of "
                 "the same size")
        self.lacks(page, "hw:cpu_policy", EVIL)
        self.mock_flavor_list.assert_called_once_with(helpers.IsHttpRequest(), None,
                                                      get_extras=True)

    @helpers.create_mocks({nova: ["flavor_list"]})
    def test_without_nova(self) -> None:
        self.mock_flavor_list.side_effect = self.exceptions.nova
        self.assertIn("Unable to retrieve the flavors.", self.said(self.client.get(INDEX))[0])


class Editing(Panels):
    """A flavor in Nova."""

    specs: dict[str, str] = GOOD

    def setUp(self) -> None:
        super().setUp()
        self.after: dict[str, str] = dict(self.specs)
        self.order: list[str] = []

        def change(_request: Any, flavor: str, values: dict[str, str]) -> None:
            self.assertEqual(flavor, "f1")
            self.order.append("set")
            self.after.update(values)

        def delete(_request: Any, _flavor: str, keys: tuple[str, ...]) -> None:
            self.order.append("delete")
            for key in keys:
                del self.after[key]

        for name, function in (("flavor_get_extras", lambda *_, **__: dict(self.after)),
                               ("flavor_extra_set", change), ("flavor_extra_delete", delete)):
            patch = helpers.mock.patch.object(nova, name, function)
            patch.start()
            self.addCleanup(patch.stop)

    def send(self, **values: str) -> Any:
        """Send the form; fields that are not given keep what the flavor has."""
        fields = {key.name: self.after.get(key.key, "") for key in KEYS}
        return self.client.post(EDIT, {"id": "f1", **fields, **values})


class Form(Editing):
    """The form."""

    def test_each_key_has_a_field_with_a_label_and_a_help_text(self) -> None:
        page = self.page(EDIT)
        for key in KEYS:
            self.has(page, f'for="id_{key.name}"', f'id="id_{key.name}"', key.key)
        self.has(page, 'value="5"', "an integer from 1 to 1000", "Default: 100",
                 'value="writeback" selected')

    def test_placement_follows(self) -> None:
        response = self.send(min_mb="700", required="true", weight="200")
        self.assertRedirectsNoFollow(response, INDEX)
        self.assertEqual(self.order, ["set", "delete"])
        self.assertEqual(disagreements(self.after), [])
        self.assertEqual(self.after["resources:CUSTOM_VCACHE_MB"], "700")
        self.assertEqual(self.after["vcache:weight"], "200")
        self.assertEqual(self.after["hw:cpu_policy"], "shared")

    def test_an_empty_field_deletes_its_key(self) -> None:
        self.send(min_mb="", mode="")
        self.assertEqual(self.after, {"hw:cpu_policy": "shared"})

    def test_what_the_schema_refuses_changes_nothing(self) -> None:
        for values, text in (({"weight": "1001"}, "must be an integer from 1 to 1000"),
                             ({"min_mb": "9", "max_mb": "8"}, "at most vcache:max_mb"),
                             ({"slo_flush_ms": "1e3"}, "must be a number from 0.001"),
                             ({"mode": "fast"}, "Select a valid choice"),
                             ({"weight": EVIL}, "must be an integer")):
            response = self.send(**values)
            page = response.content.decode()
            self.assertFormErrors(response, 1)
            self.has(page, text)
            self.lacks(page, EVIL)
            self.assertEqual((self.after, self.order), (GOOD, []))

    def test_a_failure_of_nova(self) -> None:
        with helpers.mock.patch.object(nova, "flavor_extra_set", side_effect=self.exceptions.nova):
            response = self.send(weight="5")
        self.assertEqual(response.status_code, 200)
        self.assertEqual(self.order, [])


class Words(Editing):
    """A flavor with another word that Nova allows for a boolean."""

    specs = {"vcache:mode": "flush-only", "vcache:persist": "Yes"}  # noqa: RUF012

    def test_it_is_one_of_the_choices(self) -> None:
        self.has(self.page(EDIT), '<option value="true" selected>')

    def test_placement_follows(self) -> None:
        self.send(persist="true", required="true")
        self.assertEqual(disagreements(self.after), [])
        self.assertEqual(self.after["trait:CUSTOM_VCACHE_FLUSH_ISOLATION"], "required")


class Newer(Editing):
    """A flavor with a key of a newer release."""

    specs = {"vcache:colour": "red"}  # noqa: RUF012

    def test_it_is_not_changed(self) -> None:
        response = self.send(weight="5")
        self.has(response.content.decode(), "unknown key, the keys are")
        self.assertEqual(self.order, [])
