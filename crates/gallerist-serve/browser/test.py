"""The page of `gallerist serve` in a real browser.

Trains the small network of configs/smoke.toml (seconds), serves its 1,200 test images, and compares what the page
shows with what the command line prints. Called by run.sh.
"""

import argparse
import csv
import io
import json
import math
import re
import struct
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import expect, sync_playwright

import harness
from features import *  # noqa: F403
from harness import FLAGS, PageTest, RunTest, Server, embeddings, gallerist, png, small
from saved import *  # noqa: F403

EVIL = "<script>document.title='evil'</script><img src=x onerror=\"document.title='evil'\">"


class Gallery(RunTest):
    def expected(self, k):
        """The ranked list of the query image by the command line: names of files."""
        found = json.loads(gallerist("search", "--run", self.run_directory, "--gallery", self.embeddings, "--query", self.query, "-k", k, "--json"))
        return [result["path"].split("/")[-1] for result in found[0]["results"]]

    def upload(self, path):
        self.page.locator("input[type=file]").set_input_files(path)

    def test_the_first_view_is_the_gallery(self):
        began = time.monotonic()
        page = self.open()
        expect(page.locator("main .tile img").first).to_be_visible()
        # Not wait_for_function, whose polling the page's Content-Security-Policy forbids.
        loaded = "[...document.querySelectorAll('main .tile img')].slice(0, 20).every(i => i.complete && i.naturalWidth)"
        while not page.evaluate(loaded):
            self.assertLess(time.monotonic() - began, 30)
            page.wait_for_timeout(10)
        print(f"first view: {1000 * (time.monotonic() - began):.0f} ms", file=sys.stderr)
        expect(page.locator("main .facts")).to_contain_text("1,200 images")
        self.shot("gallery")

    def test_an_uploaded_image_gives_the_ranked_list_of_the_command_line(self):
        self.open()
        self.upload(self.query)
        self.assertEqual(self.paths(), self.expected(20))
        expect(self.page.locator("main .took")).to_contain_text("ms")
        self.shot("upload")

    def test_an_item_gives_the_ranked_list_of_the_command_line_without_itself(self):
        self.open(f"#view=ranked&ids={self.items[45]['id']}&side=none")
        own = self.items[45]["path"].split("/")[-1]
        self.assertEqual(self.paths(), [path for path in self.expected(21) if path != own])

    def test_a_dropped_image_is_searched_for(self):
        page = self.open()
        expect(page.locator("main .tile").first).to_be_visible()
        data = page.evaluate_handle(
            "bytes => { const data = new DataTransfer(); data.items.add(new File([new Uint8Array(bytes)], 'dropped.png', { type: 'image/png' })); return data; }",
            list(self.query.read_bytes()),
        )
        page.dispatch_event("body", "dragenter", {"dataTransfer": data})
        expect(page.locator("#drop")).to_be_visible()
        page.dispatch_event("body", "drop", {"dataTransfer": data})
        self.assertEqual(self.paths(), self.expected(20))

    def test_a_pasted_image_is_searched_for(self):
        page = self.open()
        expect(page.locator("main .tile").first).to_be_visible()
        page.evaluate(
            "bytes => { const data = new DataTransfer(); data.items.add(new File([new Uint8Array(bytes)], 'pasted.png', { type: 'image/png' })); dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })); }",
            list(self.query.read_bytes()),
        )
        self.assertEqual(self.paths(), self.expected(20))

    def test_what_is_no_image_is_refused_in_words(self):
        broken = harness.work / "broken.png"
        broken.write_text("no picture")
        self.open()
        self.upload(broken)
        expect(self.page.locator("main .notice.error")).to_be_visible()
        self.expected_errors = 1  # The browser itself notes the status of the answer.
        self.shot("error")

    def test_a_click_on_a_result_searches_with_it_and_back_returns(self):
        page = self.open(f"#view=ranked&ids={self.items[0]['id']}&side=none")
        first = self.paths()
        cell = page.locator("main .lists [role=gridcell]").first
        before = cell.get_attribute("aria-label")
        page.locator("main .lists .picture").nth(2).click()
        expect(page).not_to_have_url(re.compile(f"ids={self.items[0]['id']}"))
        expect(cell).not_to_have_attribute("aria-label", before)
        self.assertNotEqual(self.paths(), first)
        page.go_back()
        expect(page).to_have_url(re.compile(f"ids={self.items[0]['id']}"))
        expect(cell).to_have_attribute("aria-label", before)
        self.assertEqual(self.paths(), first)

    def test_three_images_are_searched_for_together(self):
        ids = [item["id"] for item in self.items[:3]]
        self.open(f"#view=ranked&ids={','.join(ids)}&side=none")
        paths = self.paths()
        self.assertEqual(len(paths), 20)
        self.assertFalse({item["path"].split("/")[-1] for item in self.items[:3]} & set(paths))
        expect(self.page.locator(".one-query")).to_have_count(3)

    def test_an_image_is_added_to_an_upload(self):
        page = self.open()
        self.upload(self.query)
        self.paths()
        cell = page.locator("main .lists [role=gridcell]").nth(4)
        cell.hover()
        cell.get_by_role("button", name="Add to the query (a)").click()
        expect(page.locator(".one-query")).to_have_count(2)
        self.assertEqual(len(self.results()), 20)

    def test_the_number_of_results_is_chosen(self):
        self.open(f"#view=ranked&ids={self.items[0]['id']}&side=none")
        self.results()
        self.page.get_by_label("Number of results").select_option("5")
        expect(self.page.locator("main .lists [role=gridcell]")).to_have_count(5)

    def test_labels_filter_the_results_and_the_gallery(self):
        page = self.open(f"#view=ranked&ids={self.items[0]['id']}&side=none")
        self.results()
        wanted = self.items[300]["label"]
        page.keyboard.press("/")
        page.keyboard.type(wanted)
        page.keyboard.press("Enter")
        expect(page.locator(".chip")).to_have_count(1)
        expect(page.locator("main .lists [role=gridcell]").first).to_have_attribute("aria-label", re.compile(re.escape(wanted)))
        self.assertEqual({name.split(", ")[0] for _, name, _ in self.results()}, {wanted})
        page.get_by_role("button", name="Gallery", exact=True).click()
        expect(page.locator("main .facts")).to_contain_text("20 of 1,200")
        page.get_by_role("button", name=f"Remove the filter {wanted}").click()
        expect(page.locator("main .facts")).to_contain_text("1,200 images")

    def test_a_label_is_left_out(self):
        own = self.items[0]["label"]
        page = self.open(f"#view=ranked&ids={self.items[0]['id']}&side=none")
        self.results()
        page.keyboard.press("/")
        page.keyboard.type(own)
        page.keyboard.press("Shift+Enter")
        expect(page.locator("main .tally").first).to_contain_text("0 right")
        self.assertNotIn(own, {name.split(", ")[0] for _, name, _ in self.results()})

    def test_the_keyboard_moves_searches_and_marks(self):
        page = self.open()
        expect(page.locator("main .tile").first).to_be_visible()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        expect(page.locator("[role=gridcell]:focus")).to_have_attribute("data-index", "1")
        page.keyboard.press("Enter")
        self.results()
        expect(page).to_have_url(re.compile(f"ids={self.items[1]['id']}"))
        expect(page.locator("main .lists [role=gridcell]:focus")).to_have_count(1)
        page.keyboard.press("r")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("w")
        with page.expect_download() as download:
            page.get_by_role("button", name="Download 2 marks").click()
        rows = list(csv.DictReader(io.StringIO(download.value.path().read_text(), newline="")))
        self.assertEqual([row["mark"] for row in rows], ["right", "wrong"])
        self.assertEqual([row["rank"] for row in rows], ["1", "2"])
        self.assertEqual({row["query"] for row in rows}, {self.items[1]["id"]})
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys and help")).to_be_visible()
        page.keyboard.press("Escape")

    def test_the_gallery_scrolls_to_its_end(self):
        page = self.open()
        expect(page.locator("main .tile").first).to_be_visible()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("End")
        expect(page.locator("[role=gridcell]:focus")).to_have_attribute("data-index", "1199")
        expect(page.locator("[role=gridcell]:focus .tile")).to_be_visible()
        self.assertLess(page.locator("main [role=gridcell]").count(), 200)

    def test_the_map_shows_the_query_and_its_results(self):
        page = self.open(f"#view=map&ids={self.items[0]['id']}")
        expect(page.locator(".legend")).to_contain_text("query")
        expect(page.locator(".legend")).to_contain_text(self.items[0]["label"])
        self.results("aside")
        expect(self.page.locator("aside .bar").last).to_contain_text("20 nearest")
        self.shot("map")

    def test_a_lasso_selects_a_region_and_its_link_brings_it_back(self):
        page = self.open("#view=map")
        surface = page.get_by_role("application")
        expect(surface).to_be_visible()
        page.wait_for_timeout(300)
        box = surface.bounding_box()
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.keyboard.down("Shift")
        page.mouse.move(middle[0] - 150, middle[1] - 120)
        page.mouse.down()
        for x, y in [(150, -120), (150, 120), (-150, 120), (-150, -100)]:
            page.mouse.move(middle[0] + x, middle[1] + y, steps=8)
        page.mouse.up()
        page.keyboard.up("Shift")
        facts = page.locator("aside .facts")
        expect(facts).to_have_text(re.compile(r"^[1-9][\d,]* items? in the region$"))
        said = facts.inner_text()
        expect(page.locator("aside .tile").first).to_be_visible()
        expect(page.locator("aside .cell.selected").first).to_be_visible()
        self.shot("lasso")
        again = page.url
        self.open("#" + again.split("#")[1])
        expect(page.locator("aside .facts")).to_have_text(said)
        # The failures show the same selection.
        page.get_by_role("button", name="Failures").click()
        expect(page.locator("main .bar")).to_contain_text("only the selection")
        expect(page.locator("main .cell.selected").first).to_be_visible()
        self.assertEqual(page.locator("main .list .cell:not(.selected):not(.blank)").count(), 0)

    def test_the_map_pans_zooms_and_keeps_its_place_in_the_link(self):
        page = self.open("#view=map")
        surface = page.get_by_role("application")
        expect(surface).to_be_visible()
        surface.focus()
        for key in ["+", "+", "ArrowLeft"]:
            page.keyboard.press(key)
        expect(page).to_have_url(re.compile("at="))
        before = page.url
        surface.hover()
        page.mouse.wheel(0, -300)
        expect(page).not_to_have_url(before)
        # Where few points are in sight they are pictures.
        with urllib.request.urlopen(self.server.url + "/api/v1/map/points") as answer:
            content = answer.read()
        n = len(content) // 20
        x, y = (struct.unpack_from("<f", content, at * n)[0] for at in (8, 12))
        self.open(f"#view=map&at={x:.4f},{y:.4f},200")
        expect(page.locator(".pictures img").first).to_be_attached()

    def test_failures_come_worst_first_and_run_as_queries(self):
        page = self.open("#view=failures")
        expect(page.locator("main .facts")).to_contain_text("mean average precision")
        cells = page.locator("main .list [role=gridcell]")
        expect(cells.first).to_have_attribute("aria-label", re.compile("precision"))
        shown = [float(re.search(r"precision ([\d.]+)", name).group(1)) for name in self.names(cells)]
        self.assertEqual(shown, sorted(shown))
        page.locator("main .line").nth(1).click()
        self.results("aside")
        expect(self.page.locator("aside .bar").last).to_contain_text("20 nearest")
        expect(page.locator("main .cell.queried")).to_have_count(1)
        self.shot("failures")

    def test_confused_classes_and_near_duplicates_are_listed(self):
        page = self.open("#view=confusions")
        expect(page.locator(".pair").first).to_contain_text("is taken for")
        self.shot("confusions")
        page.locator(".pair .name").first.click()
        self.results("aside")
        self.open("#view=duplicates")
        page.get_by_label("closer than").fill("1")
        page.get_by_label("closer than").press("Enter")
        expect(page.locator(".double").first).to_be_visible()
        self.shot("duplicates")

    def test_items_that_are_training_images_are_found(self):
        page = self.open("#view=leaks")
        expect(page.locator("main .facts")).to_contain_text("1,200 items near training images")
        expect(page.locator(".double .between").first).to_contain_text(".000")

    def test_two_models_stand_side_by_side(self):
        page = self.open("#view=compare")
        cells = page.locator("main .list [role=gridcell]")
        expect(cells.first).to_have_attribute("aria-label", re.compile("change"))
        shown = [float(re.search(r"change ▲ \+([\d.]+)", name).group(1)) for name in self.names(cells)]
        self.assertEqual(shown, sorted(shown, reverse=True))
        page.get_by_role("button", name="Lost most").click()
        expect(cells.first).to_have_attribute("aria-label", re.compile("▼"))
        cells.first.click()
        expect(page.locator("aside .lists .one")).to_have_count(2)
        self.results("aside")
        self.shot("compare")

    def test_what_one_model_finds_and_the_other_does_not_is_shown(self):
        item = self.items[0]["id"]
        lists = [self.server.get(f"/api/v1/items/{item}/similar?k=20&model={model}")["results"] for model in ["own", "other"]]
        alone = [[r for r in own if r["id"] not in {o["id"] for o in other}] for own, other in [lists, lists[::-1]]]
        page = self.open(f"#view=ranked&ids={item}&model=both&side=none")
        heads = page.locator("main .one h2 .alone")
        for at, only in enumerate(alone):
            right = sum(r["right"] is True for r in only)
            expect(heads.nth(at)).to_have_text(f"{len(only)} {'result' if len(only) == 1 else 'results'} only here, {right} right")
        page.get_by_role("button", name="Only in one").click()
        for at, only in enumerate(alone):
            expect(page.locator("main .one").nth(at).locator("[role=gridcell]")).to_have_count(len(only))
        self.shot("only-in-one")
        page.set_viewport_size({"width": 390, "height": 844})
        page.emulate_media(color_scheme="dark")
        page.wait_for_timeout(300)
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 390)
        self.shot("only-in-one-phone-dark")
        page = self.open("#view=compare")
        expect(page.locator("main .rule")).to_contain_text("every item is a query against all the others")

    def test_details_show_why_two_images_are_close(self):
        page = self.open(f"#view=ranked&ids={self.items[0]['id']}&side=none")
        self.results()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("o")
        expect(page.locator("dialog.item figure")).to_have_count(2)
        expect(page.locator("dialog.item .heat")).to_have_count(2)
        self.shot("details")

    def test_a_link_to_an_upload_says_that_the_image_is_missing(self):
        page = self.open("#view=ranked&upload=heron.jpg")
        expect(page.locator("main .notice")).to_contain_text("heron.jpg")


class Dark(RunTest):
    settings = {"color_scheme": "dark"}

    def test_every_view_is_drawn(self):
        for name in ["gallery", f"ranked&ids={self.items[0]['id']}", "map", "failures"]:
            self.open("#view=" + name)
            self.page.wait_for_timeout(500)
            self.shot(f"{name.split('&')[0]}-dark")


class Phone(RunTest):
    """A phone's width: nothing is wider than the screen."""

    size = {"width": 390, "height": 844}
    settings = {"has_touch": True, "is_mobile": True, "device_scale_factor": 2}

    def test_no_view_is_wider_than_the_screen(self):
        query = self.items[0]["id"]
        for name in ["gallery", f"ranked&ids={query}", f"map&ids={query}", "failures", "confusions", "duplicates", "leaks", "compare"]:
            page = self.open("#view=" + name)
            page.wait_for_timeout(500)
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 390, name)
            self.shot(f"{name.split('&')[0]}-phone")

    def test_a_tap_on_an_image_searches_with_it(self):
        page = self.open()
        page.locator("main .picture").nth(3).tap()
        self.results()
        expect(page.locator("main .bar")).to_contain_text("20 nearest")


class Hostile(PageTest):
    """A gallery whose labels and paths are markup, without a network."""

    @classmethod
    def setUpClass(cls):
        cls.server = small("hostile", EVIL)
        cls.server.until(lambda g: "computing" not in (g["map"], g["failures"]), 60)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_a_label_that_is_markup_is_shown_as_text_in_every_view(self):
        item = self.server.get("/api/v1/items?limit=1")["items"][0]["id"]
        for view in ["gallery", f"ranked&ids={item}", f"map&ids={item}", "failures", f"ranked&ids={item}&open={item}"]:
            page = self.open("#view=" + view)
            page.wait_for_timeout(400)
            expect(page.locator("body")).to_contain_text("<script>")
            self.assertNotIn("evil", page.title())
            self.assertEqual(page.locator("body script").count(), 0)
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        expect(page.locator("#labels li").first).to_contain_text("<script>")
        self.shot("hostile")

    def test_without_a_network_nothing_is_offered_for_upload(self):
        page = self.open()
        expect(page.locator("main .tile").first).to_be_visible()
        expect(page.locator(".pick")).to_have_count(0)


FRUIT = [
    "Packages/Juice/Bravo-Apple-Juice", "Fruit/Apple/Golden-Delicious-from-a-very-long-shelf", "Fruit/Apple/Granny-Smith-from-a-very-long-shelf",
    "Fruit/Pineapple", "Fruit/Banana", "Vegetables/Cabbage",
]  # fmt: skip


class Labels(PageTest):
    """Long labels that begin alike, with training images and another network; without a network of its own."""

    @classmethod
    def setUpClass(cls):
        folder = harness.work / "fruit"
        folder.mkdir()
        names = [f"{i}.png" for i in range(24)]
        for i, file in enumerate(names):
            png(folder / file, 10 * i)
        labels = [FRUIT[i % 6] for i in range(24)]
        circle = [[math.cos(i % 6 + 0.02 * i), math.sin(i % 6 + 0.02 * i)] for i in range(24)]
        for run, rows in [("rll", circle), ("srt", [[1.0, 0.05 * (i % 7)] for i in range(24)])]:
            embeddings(harness.work / f"{run}.safetensors", rows, labels, names, run=f"/home/somebody/runs/{run}")
        training = harness.work / "fruit-training"
        training.mkdir()
        png(training / "leaf.png", 200)
        embeddings(harness.work / "training.safetensors", circle[:1], labels[:1], ["leaf.png"])
        cls.server = Server(
            "--gallery", harness.work / "rll.safetensors", "--images", folder, "--compare", harness.work / "srt.safetensors",
            "--training", harness.work / "training.safetensors", "--training-images", training,
        )  # fmt: skip
        cls.server.until(lambda g: "computing" not in (g["map"], g["failures"]), 60)
        cls.items = cls.server.get("/api/v1/items?limit=500")["items"]

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def cut_at_the_front(self, label):
        """The end of the text is in its box, the beginning is not, and the pointer shows all of it."""
        text = label.inner_text()
        self.assertEqual(label.get_attribute("title").split(",")[0], text)
        ends = label.evaluate(
            """label => {
                const text = label.querySelector("bdi").firstChild, box = label.getBoundingClientRect();
                const at = (from, to) => { const range = new Range(); range.setStart(text, from); range.setEnd(text, to); return range.getBoundingClientRect(); };
                const [first, last] = [at(0, 1), at(text.length - 1, text.length)];
                return [box.left - first.left, box.right - last.right, label.scrollWidth - label.clientWidth];
            }"""
        )
        self.assertGreater(ends[2], 0, f"{text} is not cut")
        self.assertGreater(ends[0], 1, f"the beginning of {text} is shown")
        self.assertGreaterEqual(ends[1], -1, f"the end of {text} is cut")

    def test_labels_are_cut_at_their_beginning_and_shown_whole_on_hover(self):
        page = self.open()
        self.cut_at_the_front(page.locator("main .caption .label", has_text="Golden-Delicious").first)
        self.shot("labels")
        self.size_is(page, 400)
        page = self.open("#view=failures")
        expect(page.locator("main .line").first).to_be_visible()
        self.cut_at_the_front(page.locator("main .who .label", has_text="Granny-Smith").first)
        self.shot("labels-phone")

    def size_is(self, page, width):
        page.set_viewport_size({"width": width, "height": 844})

    def test_the_filter_offers_all_labels_that_contain_what_is_typed(self):
        page = self.open()
        expect(page.locator("main .tile").first).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("apple")
        rows = page.locator("#labels [role=option] .label")
        expect(rows).to_have_count(5)
        wanted = sorted(label for label in FRUIT if "apple" in label.lower())
        self.assertEqual(rows.all_inner_texts(), ["all 4 labels that contain “apple”", *wanted])
        self.assertEqual(page.locator("#labels .all .label").evaluate("row => row.scrollWidth - row.clientWidth"), 0, "it is cut")
        self.shot("filter")
        # Enter takes the first label, the row above it all of them.
        expect(page.locator("#labels [aria-selected=true] .label")).to_have_text(wanted[0])
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        expect(page.locator(".chip")).to_have_count(4)
        expect(page.locator("main .facts")).to_contain_text("16 of 24")

    def test_the_keys_1_right_right_enter_open_an_image_and_not_the_tab(self):
        page = self.open("#view=failures")
        page.get_by_role("button", name="Failures").click()
        page.keyboard.press("1")
        expect(page.locator("main .tile").first).to_be_visible()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.locator("[role=gridcell]:focus")).to_have_attribute("data-index", "1")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(f"view=ranked.*ids={self.items[1]['id']}"))
        # The arrows also leave a tab that has the focus.
        page.get_by_role("button", name="Gallery", exact=True).click()
        expect(page.locator("main .tile").first).to_be_visible()
        page.keyboard.press("ArrowRight")
        expect(page.locator("[role=gridcell]:focus")).to_have_count(1)

    def test_a_mark_changes_the_badge_of_a_result_and_the_count(self):
        page = self.open(f"#view=ranked&ids={self.items[0]['id']}&side=none")
        badge = page.locator("main .lists [role=gridcell]").first.locator(".verdict")
        expect(badge).to_have_attribute("aria-label", "right")
        tally = page.locator("main .tally").first
        right = int(tally.inner_text().split()[0])
        page.keyboard.press("ArrowDown")
        page.keyboard.press("w")
        expect(badge).to_have_attribute("aria-label", "marked wrong")
        expect(badge).to_have_class(re.compile("wrong marked"))
        expect(badge).to_have_attribute("title", "you marked it wrong; same label as the query")
        expect(tally).to_have_text(f"{right - 1} right")
        self.shot("marked")
        page.keyboard.press("w")
        expect(badge).to_have_attribute("aria-label", "right")
        expect(tally).to_have_text(f"{right} right")

    def test_training_images_are_shown_among_the_leaks(self):
        page = self.open("#view=leaks")
        image = page.locator(".double .half").nth(1).locator("img")
        expect(image).to_be_visible()
        self.assertEqual(image.evaluate("async image => (await image.decode(), image.naturalWidth)"), 8)
        self.shot("leaks")
        image.click()
        self.results("aside")

    def test_two_models_are_named_with_their_map(self):
        page = self.open("#view=compare")
        compared = self.server.get("/api/v1/compare")
        own, other = (f"{compared[key]:.4f}".lstrip("0") for key in ["mean_average_precision", "other_mean_average_precision"])
        gained = f"{compared['gained']} {'query gains' if compared['gained'] == 1 else 'queries gain'}"
        said = f"rll {own} mAP, srt {other}: {gained}, {compared['lost']} lose, {compared['same']} stay"
        expect(page.locator("main .facts")).to_have_text(said)
        self.shot("two-models")

    def test_the_map_always_shows_some_point(self):
        page = self.open("#view=map")
        surface = page.get_by_role("application")
        expect(surface).to_be_visible()
        page.wait_for_timeout(400)
        box = surface.bounding_box()
        for x, y in [(0.02, 0.02), (0.98, 0.5), (0.5, 0.98), (0.03, 0.97)]:
            page.keyboard.press("0") if surface.evaluate("s => s === document.activeElement") else surface.focus()
            page.keyboard.press("0")
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
            for _ in range(8):
                page.mouse.wheel(0, -300)
            page.wait_for_timeout(700)
            # Zoomed in, the points in sight are pictures.
            seen = page.locator(".pictures img").evaluate_all(
                "(images, box) => images.filter(i => { const r = i.getBoundingClientRect(); const [x, y] = [(r.left + r.right) / 2 - box.x, (r.top + r.bottom) / 2 - box.y]; return x > 0.15 * box.width && x < 0.85 * box.width && y > 0.15 * box.height && y < 0.85 * box.height; }).length", box
            )
            self.assertGreater(seen, 0, f"nothing is in sight at {x}, {y}: {page.url}")
        self.shot("map-edge")
        # However far it is dragged, and whatever the address says.
        for _ in range(6):
            page.mouse.move(box["x"] + 100, box["y"] + 100)
            page.mouse.down()
            page.mouse.move(box["x"] + box["width"] - 100, box["y"] + box["height"] - 100, steps=4)
            page.mouse.up()
        page.wait_for_timeout(500)
        self.assertGreater(page.locator(".pictures img").count(), 0)
        page = self.open("#view=map&at=1e6,-1e6,1e9")
        expect(page.locator(".pictures img").first).to_be_attached()

    def test_the_api_has_the_style_of_the_page_and_its_address(self):
        page = self.page
        page.goto(f"{self.server.url}/api")
        expect(page.locator("pre").first).to_contain_text(f"curl {self.server.url}/api/v1/gallery")
        looks = page.evaluate("() => [getComputedStyle(document.body).fontFamily, getComputedStyle(document.querySelector('pre')).backgroundColor]")
        self.shot("api")
        self.size_is(page, 400)
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 400)
        self.shot("api-phone")
        page.emulate_media(color_scheme="dark")
        self.shot("api-dark")
        page.get_by_role("link", name="The gallery").click()
        expect(page.locator("main .tile").first).to_be_visible()
        self.assertEqual(page.evaluate("getComputedStyle(document.body).fontFamily"), looks[0])


class Queries(PageTest):
    """Queries and a gallery of persons, junk and distractors."""

    @classmethod
    def setUpClass(cls):
        folder = harness.work / "persons"
        (folder / "query").mkdir(parents=True)
        (folder / "gallery").mkdir()
        at = lambda degrees: [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]
        sides = {
            "query": [(0, "0001", "c1"), (50, "0002", "c1"), (90, "0003", "c2")],
            "gallery": [(1, "0001", "c1"), (2, "-1", "c2"), (3, "0000", "c2"), (4, "0001", "c2"), (52, "0001", "c3"), (55, "0002", "c2"), (85, "0003", "c2")],
        }
        for side, rows in sides.items():
            names = [f"{side}/{i}.png" for i in range(len(rows))]
            for i, name in enumerate(names):
                png(folder / name, 30 * i)
            degrees, labels, cameras = zip(*rows, strict=True)
            embeddings(harness.work / f"persons-{side}.safetensors", [at(d) for d in degrees], labels, names, cameras, protocol="market1501")
        cls.server = Server("--gallery", harness.work / "persons-gallery.safetensors", "--images", folder, "--queries", harness.work / "persons-query.safetensors", "--query-images", folder)
        cls.server.until(lambda g: "computing" not in (g["map"], g["failures"]), 60)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_queries_are_browsed_and_answered_by_the_protocol(self):
        page = self.open()
        expect(page.locator("main .facts")).to_contain_text("7 images")
        expect(page.locator("main .rule")).to_contain_text("Protocol of Market-1501: 3 queries against 6 items.")
        self.shot("persons")
        page.get_by_role("button", name="Queries").click()
        expect(page.locator("main .facts")).to_contain_text("3 queries")
        page.locator("main .tile .picture").first.click()
        self.assertEqual(self.paths(), [f"{i}.png" for i in [2, 3, 4, 5, 6]])
        verdicts = page.locator("main .lists .verdict")
        self.assertEqual(self.names(verdicts), ["wrong", "right", "right", "wrong", "wrong"])
        page.get_by_role("button", name="All items").click()
        expect(page.locator("main .lists [role=gridcell]")).to_have_count(7)
        said = self.names(page.locator("main .lists .verdict"))
        self.assertEqual(said[:4], ["does not count", "does not count", "wrong", "right"])
        self.shot("persons-all")
        again = page.url
        self.open("#" + again.split("#")[1])
        expect(page.locator("main .lists [role=gridcell]")).to_have_count(7)

    def test_queries_are_stepped_through_with_their_metric(self):
        queries = self.server.get("/api/v1/items?set=query")["items"]
        page = self.open(f"#view=ranked&ids={queries[0]['id']}&side=none")
        facts = page.locator(".steps .facts")
        expect(facts).to_contain_text("Query 1 of 2")
        expect(facts).to_contain_text("nearest is wrong, first right at rank 2")
        first = self.server.get(f"/api/v1/failures/{queries[0]['id']}")["average_precision"]
        expect(facts).to_contain_text(f"average precision {first:.3f}".replace("0.", "."))
        expect(page.get_by_role("button", name="Previous")).to_be_disabled()
        self.shot("steps")
        page.get_by_role("button", name="Next").click()
        expect(facts).to_contain_text("Query 2 of 2")
        expect(page).to_have_url(re.compile(f"ids={queries[1]['id']}"))
        expect(page.get_by_role("button", name="Next")).to_be_disabled()
        page.keyboard.press("p")
        expect(facts).to_contain_text("Query 1 of 2")
        page.get_by_label("Order of the queries").select_option("-ap")
        place = self.server.get(f"/api/v1/failures/{queries[0]['id']}?sort=-ap")["place"]
        expect(facts).to_contain_text(f"Query {place + 1} of 2")
        # The list of queries has the same orders, and an item of the gallery is no query.
        page = self.open("#view=failures&sort=wrong")
        expect(page.get_by_role("button", name="Wrong first")).to_have_attribute("aria-pressed", "true")
        page.locator("main .line").first.click()
        expect(page.locator("aside .steps .facts")).to_contain_text("Query 1 of 2")
        item = self.server.get("/api/v1/items?limit=1")["items"][0]["id"]
        self.open(f"#view=ranked&ids={item}&side=none")
        self.results()
        expect(page.locator(".steps")).to_be_hidden()

    def test_the_steps_fit_a_phone_and_the_dark(self):
        query = self.server.get("/api/v1/items?set=query")["items"][0]["id"]
        self.page.set_viewport_size({"width": 390, "height": 844})
        self.page.emulate_media(color_scheme="dark")
        page = self.open(f"#view=ranked&ids={query}&side=none")
        expect(page.locator(".steps .facts")).to_contain_text("Query 1 of 2")
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 390)
        self.shot("steps-phone-dark")

    def test_failures_are_those_of_the_queries(self):
        page = self.open("#view=failures")
        expect(page.locator("main .facts")).to_contain_text("2 queries, mean average precision .5417")
        expect(page.locator("main .facts")).to_contain_text("cmc@1 .0000")
        expect(page.locator("main .rule")).to_contain_text("Market-1501")
        self.shot("persons-failures")
        page.locator("main .line").first.click()
        self.assertEqual(self.paths("aside")[0], "4.png")
        page = self.open("#view=confusions")
        expect(page.locator(".pair").first).to_contain_text("0001 is taken for 0000")


class QueriesWithNetwork(RunTest):
    """Queries, and a network for uploads."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        folder = harness.work / "asked"
        folder.mkdir()
        for i in range(2):
            png(folder / f"{i}.png", 100 * i)
        (folder / "list.csv").write_text("path,label\n0.png,a\n1.png,b\n")
        queries = harness.work / "asked.safetensors"
        gallerist("embed", "--run", cls.run_directory, "--images", folder / "list.csv", "--out", queries)
        cls.serve("--gallery", cls.embeddings, "--queries", queries)

    def test_an_image_is_searched_for_after_all_items_were_listed(self):
        query = self.server.get("/api/v1/items?set=query")["items"][0]["id"]
        page = self.open(f"#view=ranked&ids={query}&side=none")
        self.results()
        page.get_by_role("button", name="All items").click()
        expect(page).to_have_url(re.compile("all=yes"))
        for together in [False, True]:
            if together:
                page = self.open(f"#view=ranked&ids={query}&all=yes&side=none")
                self.results()
                page.evaluate("async bytes => (await import('/actions.js')).upload([new File([new Uint8Array(bytes)], 'query.png', { type: 'image/png' })], true)", list(self.query.read_bytes()))
            else:
                page.locator("input[type=file]").set_input_files(self.query)
            expect(page).to_have_url(re.compile("upload=query.png"))
            # An upload lists all items in any case.
            expect(page.get_by_role("button", name="All items")).to_have_count(0)
            expect(page.locator("main .notice.error")).to_have_count(0)
            expect(page.locator(".one-query")).to_have_count(2 if together else 1)
            self.assertEqual(len(self.results()), 20)


class LabelSets(PageTest):
    """A gallery of label sets."""

    @classmethod
    def setUpClass(cls):
        folder = harness.work / "sets"
        folder.mkdir()
        labels = ["a|b", "b|c", "c", "d", "a"]
        names = [f"{i}.png" for i in range(len(labels))]
        for i, name in enumerate(names):
            png(folder / name, 40 * i)
        at = lambda degrees: [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]
        embeddings(harness.work / "sets.safetensors", [at(degrees) for degrees in [0, 10, 30, 80, 90]], labels, names)
        cls.server = Server("--gallery", harness.work / "sets.safetensors", "--images", folder)
        cls.server.until(lambda g: "computing" not in (g["map"], g["failures"]), 60)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_the_nearest_image_is_right_if_it_shares_a_label(self):
        page = self.open("#view=failures&sort=file")
        lines = page.locator("main .line")
        expect(lines).to_have_count(4)
        # The last query is an `a` whose nearest image is a `d`.
        for at, right in enumerate([True, True, True, False]):
            self.assertEqual(self.names(lines.nth(at).locator(".verdict")), ["right" if right else "wrong"], at)
            expect(lines.nth(at)).to_contain_text("first right at rank " + ("1 " if right else ""))

    def test_a_selected_label_marks_the_images_that_are_selected(self):
        for label, wanted in [("a", ["a", "a|b"]), ("c", ["b|c", "c"]), ("b|c", ["b|c"])]:
            page = self.open(f"#view=gallery&class={quote(label)}&side=selection")
            expect(page.locator("main .tile")).to_have_count(5)
            expect(page.locator("main .cell.selected")).to_have_count(len(wanted))
            marked = [name.split(",")[0] for name in self.names(page.locator("main .cell.selected"))]
            selected = page.evaluate(
                """async () => {
                    const [selection, state] = [await import("/selection.js"), await import("/state.js")];
                    return selection.ids(state.get());
                }"""
            )
            labels = {item["id"]: item["label"] for item in self.server.get("/api/v1/items")["items"]}
            self.assertEqual((sorted(marked), sorted(labels[one] for one in selected)), (wanted, wanted))


class Modules(PageTest):
    """Parts of the page beside naive versions."""

    @classmethod
    def setUpClass(cls):
        cls.server = small("small", "a")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_an_address_brings_back_the_state_it_was_made_of(self):
        state = {
            "view": "map", "set": "query", "side": "selection", "k": 50, "all": "yes", "lasso": "1,2;3,4;-5e-7,6", "open": "18446744073709551615", "model": "both", "sort": "-ap",
            "upload": "a b&c=d.jpg", "at": "1,2,3", "ids": ["1", "18446744073709551615"], "label": ["a&b=c#d", "e,f", "ü %41", "<b>"], "not_label": ["+ +"],
            "camera": ["c/1"], "sel": ["7"], "class": ["x;y"], "where": 'price < 20 & "a=b"', "order": "-price", "hist": "yes", "names": "by:a&b", "gallery": "b c", "step": "-ap", "group": "shop", "only": "yes", "saved": "tags:a&b:c", "from": "0.5", "to": "0.75", "crop": ["1:0.1,0.2,0.3,0.4"], "text": "a red shoe & \"boots\"",
        }  # fmt: skip
        self.open()
        found = self.page.evaluate("async state => { const { parse, format } = await import('/state.js'); return parse(format(state)); }", state)
        self.assertEqual(found, state)

    def test_what_is_no_state_falls_back_to_the_standard(self):
        self.open("#view=nowhere&ids=1;drop,x,-1&k=-7&lasso=oops&open=../../etc&at=NaN")
        expect(self.page.locator("main .tile").first).to_be_visible()
        expect(self.page.locator(".one-query")).to_have_count(0)

    def test_a_selected_item_that_is_gone_leaves_a_gap_among_the_others(self):
        first, second = [item["id"] for item in self.server.get("/api/v1/items")["items"][:2]]
        page = self.open(f"#view=gallery&sel={first},12345,{second}&side=selection")
        cells = page.locator("aside [role=gridcell]")
        expect(cells).to_have_count(3)
        expect(cells.nth(1)).to_have_text("not in the gallery")
        for at in [0, 2]:
            expect(cells.nth(at)).to_have_attribute("aria-selected", "true")
        cells.nth(2).focus()
        page.keyboard.press("o")
        expect(page).to_have_url(re.compile(f"open={second}"))

    def test_a_region_drawn_to_an_edge_is_a_region(self):
        self.open()
        lost = self.page.evaluate(
            """async () => {
                const { format, parse } = await import("/crop.js");
                const lost = [];
                for (const size of [299, 640, 733]) {
                    for (let from = 0; from < size; from++) {
                        const [left, width] = [from / size, 1 - from / size];
                        const text = format([left, left, width, width]);
                        const region = parse(text);
                        if (!region || format(region) !== text || region[0] + region[2] < 1 - 1e-6) lost.push(text);
                    }
                }
                return lost;
            }"""
        )
        self.assertEqual(lost, [])

    def test_points_are_found_as_by_looking_at_all_of_them(self):
        self.open()
        wrong = self.page.evaluate(
            """async () => {
                const { Points } = await import("/points.js");
                let seed = 1;
                const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
                let wrong = 0;
                for (const n of [1, 2, 33, 2000]) {
                    const bytes = new ArrayBuffer(20 * n);
                    const ids = new BigUint64Array(bytes, 0, n), x = new Float32Array(bytes, 8 * n, n), y = new Float32Array(bytes, 12 * n, n);
                    for (let i = 0; i < n; i++) {
                        // Ids beyond 2^53 that differ in the last bit, in no order.
                        ids[i] = 2n ** 63n + BigInt((i * 7919) % n);
                        [x[i], y[i]] = [random() * 10 - 5, random() ** 3];
                    }
                    const points = new Points(bytes, []);
                    for (let i = 0; i < n; i++) wrong += points.index(points.id(i)) !== i;
                    wrong += points.index("5") !== -1;
                    for (let trial = 0; trial < 50; trial++) {
                        const corners = Array.from({ length: 3 + (trial % 9) }, () => [random() * 10 - 5, random()]);
                        const inside = (px, py) => {
                            let hits = 0;
                            corners.forEach(([ax, ay], i) => {
                                const [bx, by] = corners[(i + 1) % corners.length];
                                if (ay > py !== by > py && px < ax + ((py - ay) / (by - ay)) * (bx - ax)) hits++;
                            });
                            return hits % 2 === 1;
                        };
                        const naive = Array.from(x.keys()).filter((i) => inside(x[i], y[i]));
                        wrong += String(naive) !== String(Array.from(points.inside(corners)));
                        const [px, py] = [random() * 10 - 5, random()];
                        const distances = Array.from(x, (_, i) => (x[i] - px) ** 2 + (y[i] - py) ** 2);
                        const least = Math.min(...distances);
                        const found = points.nearest(px, py, 1);
                        wrong += least < 1 ? distances[found] !== least : found !== -1;
                    }
                }
                return wrong;
            }"""
        )
        self.assertEqual(wrong, 0)

    def test_marks_are_read_back_from_their_csv(self):
        hostile = 'a "b", c\nd'
        self.open()
        text = self.page.evaluate(
            """async label => {
                const marks = await import("/marks.js");
                marks.open({ name: "test" });
                const query = { key: "1+2", ids: ["1", "2"], name: label, label: null };
                marks.toggle(query, { id: "3", label, path: "p,q.png", rank: 1, distance: 0.25 }, "right");
                marks.toggle(query, { id: "4", label: null, path: null, rank: 2, distance: 0.5 }, "wrong");
                marks.toggle(query, { id: "5", rank: 3, distance: 1 }, "wrong");
                marks.toggle(query, { id: "5", rank: 3, distance: 1 }, "wrong");
                return marks.csv();
            }""",
            hostile,
        )
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        self.assertEqual([row["mark"] for row in rows], ["right", "wrong"])
        self.assertEqual(rows[0]["query_name"], hostile)
        self.assertEqual((rows[0]["result_label"], rows[0]["result_path"], rows[0]["query"]), (hostile, "p,q.png", "1+2"))
        self.assertEqual((rows[1]["result_label"], rows[1]["distance"]), ("", "0.5"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, required=True, help="the built gallerist")
    parser.add_argument("--chromium", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the screenshots")
    harness.options, rest = parser.parse_known_args()
    harness.options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        harness.work = Path(folder)
        harness.chromium = playwright.chromium.launch(executable_path=harness.options.chromium, args=FLAGS)
        expect.set_options(timeout=10_000)
        result = unittest.main(argv=[sys.argv[0], *rest], verbosity=2, exit=False).result
        harness.chromium.close()
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)


if __name__ == "__main__":
    main()
