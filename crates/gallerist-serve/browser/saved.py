"""Tests of the page: tags and saved selections."""

import csv
import json
import re
import shutil
from urllib.parse import quote
from urllib.request import Request, urlopen

from playwright.sync_api import expect

import harness
from features import DARK, PHONE
from harness import RunTest


class Saved(RunTest):
    """A server that stores tags and selections for users with its token."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        cls.file = harness.work / f"saved {cls.__name__}.safetensors"
        shutil.copy(cls.embeddings, cls.file)
        cls.stored = cls.file.with_name(cls.file.name + ".tags.json")
        cls.serve("--gallery", cls.file, "--writable", "--token", "secret")

    def setUp(self):
        super().setUp()
        for kind in ["tags", "selections"]:
            for one in self.server.get("/api/v1/saved")[kind]:
                path = f"/api/v1/saved/{kind}/{quote(one['name'], safe='')}"
                request = Request(self.server.url + path, method="DELETE", headers={"Authorization": "Bearer secret"})
                urlopen(request, timeout=30).close()

    def cell(self, at):
        return self.page.locator("main [role=gridcell]").nth(at)

    def select(self, *places):
        """Selects the items at these places by clicks."""
        button = self.page.get_by_role("button", name="Select", exact=True)
        if button.get_attribute("aria-pressed") == "false":
            button.click()
        for at in places:
            self.cell(at).locator(".picture").click()
            expect(self.cell(at)).to_have_attribute("aria-selected", "true")

    def bar(self, action, name):
        self.page.get_by_label("Name of a tag or of a selection").fill(name)
        self.page.locator(".picked").get_by_role("button", name=action).click()

    def dialog(self):
        self.page.get_by_role("button", name="Saved", exact=True).click()
        dialog = self.page.locator("dialog.saved")
        expect(dialog).to_be_visible()
        return dialog

    def enter_token(self):
        dialog = self.dialog()
        dialog.get_by_label("Token of the server").fill("secret")
        dialog.get_by_role("button", name="Use the token").click()
        expect(dialog).to_contain_text(f"Stored on the server in {self.stored.name}")
        return dialog

    def on_disk(self):
        return json.loads(self.stored.read_text())

    def test_tags_are_stored_shown_and_filter(self):
        page = self.open()
        expect(self.cell(0).locator("img")).to_be_visible()
        self.enter_token().get_by_role("button", name="Close").click()
        self.select(0, 2)
        expect(page.locator(".picked")).to_contain_text("2 items selected")
        self.bar("Add tag", "to <b>check</b>")
        expect(self.cell(2).locator(".tags")).to_have_text("to <b>check</b>")
        expect(self.cell(1).locator(".tags")).to_have_count(0)
        self.shot("tags")
        ids = [self.items[at]["id"] for at in (0, 2)]
        self.assertEqual(self.on_disk()["tags"], {"to <b>check</b>": sorted(ids, key=int)})
        # Another page sees them without a token.
        other = self.context.browser.new_context().new_page()
        other.goto(self.server.url)
        expect(other.locator("main [role=gridcell]").nth(2).locator(".tags")).to_have_text("to <b>check</b>")
        other.context.close()
        page.locator(".picked").get_by_role("button", name="Clear").click()
        page.get_by_role("button", name="Select", exact=True).click()
        dialog = self.dialog()
        expect(dialog).to_contain_text("2 items")
        dialog.get_by_role("button", name="Filter by to <b>check</b>").click()
        expect(page.locator("main .facts")).to_contain_text("2 of 1,200")
        # The filter also applies to searches, and is part of the link.
        self.cell(0).locator(".picture").click()
        expect(page.locator("main .lists [role=gridcell]")).to_have_count(1)
        expect(page.locator("main .lists .tags")).to_have_text("to <b>check</b>")
        self.shot("tags-filter")
        self.open("#" + page.url.split("#")[1])
        expect(page.locator("main .lists [role=gridcell]")).to_have_count(1)
        page.get_by_role("button", name="Remove the filter tag to <b>check</b>").click()
        expect(page.locator("main .bar")).to_contain_text("20 nearest")

    def test_results_are_tagged_and_lose_their_tag(self):
        page = self.open(f"#view=ranked&ids={self.items[0]['id']}&side=none")
        self.results()
        self.enter_token().get_by_role("button", name="Close").click()
        self.select(0, 1, 3)
        self.bar("Add tag", "twins")
        expect(page.locator("main .lists .tags")).to_have_count(3)
        expect(self.cell(3)).to_have_attribute("aria-label", re.compile("tagged twins$"))
        self.shot("tags-results")
        self.cell(1).locator(".picture").click()
        expect(page.locator(".picked")).to_contain_text("2 items selected")
        self.bar("Remove tag", "twins")
        expect(page.locator("main .lists .tags")).to_have_count(1)
        self.assertEqual(len(self.on_disk()["tags"]["twins"]), 1)

    def test_an_image_beyond_the_most_that_clicks_select_is_refused(self):
        # 500 items; one of them is not in the gallery.
        chosen = [item["id"] for item in self.items[1:500]] + ["1"]
        page = self.open(f"#sel={','.join(chosen)}")
        expect(self.cell(1)).to_have_attribute("aria-selected", "true")
        self.cell(0).locator(".picture").click(modifiers=["Control"])
        expect(page.locator("#toast")).to_contain_text("At most 500 images are selected")
        expect(self.cell(0)).to_have_attribute("aria-selected", "false")
        expect(self.cell(1)).to_have_attribute("aria-selected", "true")
        for at, selected in [(1, "false"), (0, "true")]:
            self.cell(at).locator(".picture").click(modifiers=["Control"])
            expect(self.cell(at)).to_have_attribute("aria-selected", selected)

    def test_a_selection_is_saved_opened_renamed_exported_and_deleted(self):
        page = self.open()
        expect(self.cell(0).locator("img")).to_be_visible()
        self.enter_token().get_by_role("button", name="Close").click()
        self.select(3, 1)
        self.bar("Save selection", "for the poster")
        expect(page.locator("#toast")).to_contain_text("2 items saved in “for the poster”")
        dialog = self.dialog()
        self.shot("saved")
        dialog.get_by_role("button", name="Rename for the poster").click()
        dialog.get_by_label("New name of for the poster").fill("poster, 2nd")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("button", name="Rename poster, 2nd")).to_be_visible()
        with page.expect_download() as download:
            dialog.get_by_role("link", name="CSV").click()
        rows = list(csv.DictReader(download.value.path().read_text(encoding="utf-8").splitlines()))
        self.assertEqual([row["path"] for row in rows], [self.items[at]["path"] for at in (3, 1)])
        dialog.get_by_role("button", name="Open poster, 2nd").click()
        expect(page.locator("main .facts")).to_contain_text("2 of 1,200")
        dialog = self.dialog()
        dialog.get_by_role("button", name="Delete poster, 2nd").click()
        self.shot("saved-delete")
        dialog.get_by_role("button", name="Keep").click()
        dialog.get_by_role("button", name="Delete poster, 2nd").click()
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(dialog).to_contain_text("No selections yet")
        self.assertEqual(self.on_disk()["selections"], {})
        dialog.get_by_role("button", name="Close").click()
        expect(page.locator("main .facts")).to_contain_text("1,200 images")

    def test_without_the_token_they_are_kept_in_the_tab_and_stored_later(self):
        page = self.open()
        expect(self.cell(0).locator("img")).to_be_visible()
        self.select(0, 1)
        expect(page.locator(".picked")).to_contain_text("kept in this tab only")
        self.bar("Add tag", "mine")
        self.bar("Save selection", "two")
        expect(page.locator("#toast")).to_contain_text("kept in this tab only")
        self.assertEqual(self.server.get("/api/v1/saved")["tags"], [])
        page.reload()
        expect(self.cell(1).locator(".tags")).to_have_text("mine")
        dialog = self.dialog()
        expect(dialog).to_contain_text("kept in this tab until it is closed")
        self.shot("saved-tab")
        with page.expect_download() as download:
            dialog.locator("section", has_text="Selections").get_by_role("button", name="CSV").click()
        rows = list(csv.DictReader(download.value.path().read_text(encoding="utf-8").splitlines()))
        self.assertEqual([(row["id"], row["tags"]) for row in rows], [(self.items[at]["id"], "mine") for at in (0, 1)])
        dialog.get_by_role("button", name="Filter by mine").click()
        expect(page.locator("main .facts")).to_contain_text("2 of 1,200")
        dialog = self.dialog()
        dialog.get_by_label("Token of the server").fill("wrong")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("The server permits no changes with this token.")
        dialog.get_by_label("Token of the server").fill("secret")
        page.keyboard.press("Enter")
        dialog.get_by_role("button", name="Store 2 lists of this tab on the server").click()
        expect(dialog).not_to_contain_text("in this tab")
        ids = [self.items[at]["id"] for at in (0, 1)]
        self.assertEqual(self.on_disk(), {"version": 1, "tags": {"mine": sorted(ids, key=int)}, "selections": {"two": ids}})
        dialog.get_by_role("button", name="Close").click()
        expect(page.locator("main .facts")).to_contain_text("2 of 1,200")

    def test_the_details_of_an_item_have_its_tags(self):
        page = self.open(f"#view=gallery&open={self.items[4]['id']}")
        field = page.get_by_label("Add a tag")
        field.fill("blurred")
        page.keyboard.press("Enter")
        details = page.locator("dialog.item")
        expect(details.locator(".chip")).to_contain_text("blurred")
        self.shot("tags-item")
        details.get_by_role("button", name="Remove the tag blurred").click()
        expect(details.locator(".chip")).to_have_count(0)


class SavedDark(Saved):
    settings = DARK

    def shot(self, name):
        super().shot(f"{name}-dark")


class SavedPhone(Saved):
    size = {"width": 390, "height": 844}
    settings = PHONE

    def shot(self, name):
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 390)
        super().shot(f"{name}-phone")


class SavedReadOnly(RunTest):
    """A server that cannot be changed."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        cls.serve("--gallery", cls.embeddings)

    def test_it_is_said_that_tags_stay_in_the_tab(self):
        page = self.open()
        expect(page.locator("main .tile img").first).to_be_visible()
        page.get_by_role("button", name="Saved", exact=True).click()
        expect(page.locator("dialog.saved")).to_contain_text("not started with --writable")
        expect(page.get_by_label("Token of the server")).to_have_count(0)


class Closed(RunTest):
    """A server that only answers clients with a token."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        cls.server = harness.Server("--gallery", cls.embeddings, "--run", cls.run_directory, "--read-token", "reader:r1", token="r1")

    def test_the_page_asks_for_a_token_and_shows_pictures_with_it(self):
        page = self.open()
        field = page.get_by_label("Token of the server")
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("main [role=alert]")).to_have_text("The server has another token.")
        self.shot("token")
        field.fill("r1")
        page.keyboard.press("Enter")
        expect(page.locator("main [role=gridcell]").first.locator("img")).to_be_visible()
        self.assertGreater(page.locator("main [role=gridcell] img").first.evaluate("image => image.naturalWidth"), 0)
        # Scripts cannot read the cookie; it lasts for other tabs, and for searches.
        self.assertEqual(page.evaluate("document.cookie"), "")
        page.reload()
        page.locator("main [role=gridcell]").first.locator(".picture").click()
        self.results()
        # Without the cookie, the token of the tab is used again; without both, the page asks.
        address = page.url
        self.forget(page)
        page.goto(address)
        self.results()
        self.forget(page)
        other = self.context.new_page()
        other.goto(self.server.url)
        expect(other.get_by_label("Token of the server")).to_be_visible()
        other.close()
        # Each refusal of the server: the first page, the wrong token, the page opened again without the cookie.
        self.expected_errors = 3

    def forget(self, page):
        """Deletes the cookie. The page is left first: a picture that it still loads would be refused, too."""
        page.goto("about:blank")
        self.context.clear_cookies()
