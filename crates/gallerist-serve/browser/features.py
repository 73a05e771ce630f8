"""Tests of the page: regions of a picture, the threshold, metadata."""

import json
import re
import shutil
import subprocess
import unittest
from urllib.parse import quote
from urllib.request import Request, urlopen

from playwright.sync_api import expect

import harness
from harness import PageTest, RunTest, Server, gallerist, png

DARK = {"color_scheme": "dark"}
PHONE = {"has_touch": True, "is_mobile": True, "device_scale_factor": 2}


def pixels(path):
    """Width, height and rows of a PNG of Omniglot (8 bits or fewer, grey), decoded by the browser's own decoder."""
    page = harness.chromium.new_page()
    try:
        return page.evaluate(
            """async bytes => {
                const image = await createImageBitmap(new Blob([new Uint8Array(bytes)]));
                return [image.width, image.height];
            }""",
            list(path.read_bytes()),
        )
    finally:
        page.close()


class Crop(RunTest):
    """A part of a picture is searched with."""

    def upload(self):
        self.page.locator("input[type=file]").set_input_files(self.query)
        self.results()
        return self.paths()

    def open_dialog(self):
        self.page.get_by_role("button", name=re.compile("^Choose a part of")).first.click()
        stage = self.page.locator(".crop-stage")
        expect(stage).to_be_visible()
        expect(self.page.locator(".crop-box")).to_be_focused()
        self.page.wait_for_timeout(100)
        return stage.bounding_box()

    def drag(self, box, *corners):
        at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
        self.page.mouse.move(*at[0])
        self.page.mouse.down()
        for place in at[1:]:
            self.page.mouse.move(*place, steps=4)
        self.page.mouse.up()

    def region(self):
        box = self.page.locator(".crop-box")
        return [round(float(value), 3) for value in box.evaluate("b => [b.style.left, b.style.top, b.style.width, b.style.height].map(parseFloat)")]

    def near(self, found, wanted, within=1.0):
        self.assertTrue(all(abs(a - b) <= within for a, b in zip(found, wanted, strict=True)), f"{found} {wanted}")

    def test_a_region_of_an_upload_is_drawn_moved_resized_and_searched_with(self):
        self.open()
        whole = self.upload()
        box = self.open_dialog()
        self.drag(box, (0.2, 0.2), (0.5, 0.6))
        self.near(self.region(), [20, 20, 30, 40])
        # The inside moves it, an edge and a corner resize it.
        self.drag(box, (0.3, 0.3), (0.4, 0.2))
        self.near(self.region(), [30, 10, 30, 40])
        self.drag(box, (0.6, 0.3), (0.8, 0.3))
        self.near(self.region(), [30, 10, 50, 40])
        self.drag(box, (0.3, 0.1), (0.1, 0.2))
        self.near(self.region(), [10, 20, 70, 30])
        # Beyond the picture it ends at its edge.
        self.drag(box, (0.4, 0.3), (0.9, 0.95))
        self.near(self.region(), [30, 70, 70, 30])
        self.shot("crop")
        self.page.get_by_role("button", name="Search with this region").click()
        expect(self.page.locator(".one-query canvas")).to_have_count(1)
        expect(self.page.locator("main .view")).to_have_attribute("aria-busy", "false")
        part = self.paths()
        self.assertNotEqual(part, whole)
        self.shot("crop-results")
        # The whole image again gives the former list.
        self.open_dialog()
        self.page.get_by_role("button", name="Whole image").click()
        expect(self.page.locator(".one-query canvas")).to_have_count(0)
        expect(self.page.locator("main .view")).to_have_attribute("aria-busy", "false")
        self.assertEqual(self.paths(), whole)

    def test_the_ranked_list_of_a_region_is_that_of_the_cropped_file(self):
        width, height = pixels(self.query)
        left, top, w, t = 10, 20, 60, 50
        region = f"{left / width},{top / height},{w / width},{t / height}"
        page = harness.chromium.new_page()
        cut = page.evaluate(
            """async ([bytes, left, top, width, height]) => {
                const image = await createImageBitmap(new Blob([new Uint8Array(bytes)]));
                const canvas = new OffscreenCanvas(width, height);
                canvas.getContext("2d").drawImage(image, -left, -top);
                const blob = await canvas.convertToBlob({ type: "image/png" });
                return [...new Uint8Array(await blob.arrayBuffer())];
            }""",
            [list(self.query.read_bytes()), left, top, w, t],
        )
        page.close()
        file = harness.work / "cut.png"
        file.write_bytes(bytes(cut))
        found = json.loads(gallerist("search", "--run", self.run_directory, "--gallery", self.embeddings, "--query", file, "-k", 20, "--json"))
        wanted = [result["path"].split("/")[-1] for result in found[0]["results"]]
        item = self.items[45]
        own = item["path"].split("/")[-1]
        self.open(f"#view=ranked&ids={item['id']}&crop={item['id']}:{region}&side=none")
        self.assertEqual([path for path in self.paths() if path != own][:19], [path for path in wanted if path != own][:19])

    def test_the_keyboard_chooses_a_region_of_an_item(self):
        item = self.items[0]["id"]
        page = self.open(f"#view=ranked&ids={item}&side=none")
        self.results()
        page.keyboard.press("c")
        box = page.locator(".crop-box")
        expect(box).to_be_focused()
        for _ in range(40):
            page.keyboard.press("Shift+ArrowLeft")
        for _ in range(50):
            page.keyboard.press("Shift+ArrowUp")
        for _ in range(10):
            page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        self.assertEqual(self.region(), [10, 1, 60, 50])
        expect(box).to_have_attribute("aria-label", "Region: from 10 % of the width and 1 % of the height, 60 % wide, 50 % high")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(f"crop={item}%3A0.1,0.01,0.6,0.5"))
        expect(page.locator(".one-query canvas")).to_have_count(1)
        self.results()
        # The link brings the region back, and another query forgets it.
        self.open("#" + page.url.split("#")[1])
        expect(page.locator(".one-query canvas")).to_have_count(1)
        self.results()
        page.locator("main .lists .picture").nth(2).click()
        expect(page.locator(".one-query canvas")).to_have_count(0)
        self.assertNotIn("crop=", page.url)

    def test_escape_leaves_the_query_as_it_was(self):
        page = self.open(f"#view=ranked&ids={self.items[0]['id']}&side=none")
        before = self.paths()
        page.keyboard.press("c")
        expect(page.locator(".crop-box")).to_be_focused()
        page.keyboard.press("Shift+ArrowLeft")
        page.keyboard.press("Escape")
        expect(page.locator("dialog.crop")).to_be_hidden()
        self.assertEqual(self.paths(), before)
        self.assertNotIn("crop=", page.url)

    def test_details_offer_a_part_of_the_item(self):
        page = self.open(f"#view=gallery&open={self.items[3]['id']}")
        page.get_by_role("button", name="Search with a part").click()
        box = page.locator(".crop-stage").bounding_box()
        self.drag(box, (0.1, 0.1), (0.7, 0.7))
        page.get_by_role("button", name="Search with this region").click()
        self.results()
        expect(page.locator(".one-query canvas")).to_have_count(1)


class CropDark(Crop):
    settings = DARK

    def shot(self, name):
        super().shot(f"{name}-dark")


class CropPhone(RunTest):
    """The region on a phone, by finger."""

    size = {"width": 390, "height": 844}
    settings = PHONE

    def test_a_finger_draws_a_region(self):
        page = self.open(f"#view=ranked&ids={self.items[0]['id']}&side=none")
        self.results()
        page.get_by_role("button", name=re.compile("^Choose a part of")).tap()
        page.wait_for_timeout(200)
        box = page.locator(".crop-stage").bounding_box()
        self.assertLessEqual(box["x"] + box["width"], 390)
        touch = self.context.new_cdp_session(page)

        def point(kind, x, y):
            points = [] if kind == "touchEnd" else [{"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]}]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        point("touchStart", 0.25, 0.25)
        for step in range(1, 6):
            point("touchMove", 0.25 + 0.1 * step, 0.25 + 0.08 * step)
            page.wait_for_timeout(50)
        # The finger rests before it is lifted: the browser ignores a tap after a quick swipe.
        page.wait_for_timeout(300)
        point("touchMove", 0.75, 0.651)
        point("touchEnd", 0, 0)
        page.wait_for_timeout(600)
        found = page.locator(".crop-box").evaluate("b => [b.style.left, b.style.top, b.style.width, b.style.height].map(parseFloat)")
        self.assertTrue(all(abs(a - b) < 2 for a, b in zip(found, [25, 25, 50, 40], strict=True)), found)
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 390)
        self.shot("crop-phone")
        page.get_by_role("button", name="Search with this region").tap()
        expect(page.locator(".one-query canvas")).to_have_count(1)
        self.results()


class Threshold(RunTest):
    """A gallery with a calibrated threshold: marks of the results, and the lines between them."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        marked = harness.work / "threshold.safetensors"
        marked.write_bytes(cls.embeddings.read_bytes())
        gallerist("threshold", "--embeddings", cls.embeddings, "--far", "0.002", "--save", marked)
        cls.serve("--gallery", marked)
        cls.threshold = cls.server.get("/api/v1/gallery")["threshold"]

    def with_all_three(self):
        """An item with matches, near results and others among its 50 nearest."""
        for item in self.items:
            answer = self.server.get(f"/api/v1/items/{item['id']}/similar?k=50")
            marks = [result["match"] for result in answer["results"]]
            if 1 < marks.count("match") < 14 and marks.count("near") > 1 and "no_match" in marks:
                return item["id"], marks
        self.fail("no item has all three")

    def test_the_marks_and_lines_of_the_ranked_list_are_those_of_the_threshold(self):
        item, marks = self.with_all_three()
        page = self.open(f"#view=ranked&ids={item}&k=50&side=none")
        self.results()
        matches, near = marks.count("match"), marks.count("near")
        expect(page.locator("main .decided")).to_contain_text(f"{matches} match")
        cells = page.locator("main .lists [role=gridcell]")
        for at, mark in enumerate(marks[:10]):
            expect(cells.nth(at).locator(".decision")).to_have_count(0 if mark == "no_match" else 1)
            said = cells.nth(at).get_attribute("aria-label")
            self.assertEqual(", match" in said, mark == "match", said)
        # Each label of a line is at the first result beyond it.
        index = lambda name: int(page.locator(f"main .bound.{name}").evaluate("b => b.closest('[role=gridcell]').dataset.index"))
        self.assertEqual(index("match"), matches)
        expect(page.locator("main .bound.match")).to_have_text(f"threshold {self.threshold['distance']:.3f}".replace("0.", "."))
        # The line is below the cells of its row before it, and above the others.
        lines = cells.evaluate_all("cells => cells.map(c => [Number(c.dataset.index), c.classList.contains('match-below'), c.classList.contains('match-above')])")
        columns = int(page.locator("main .lists .grid").get_attribute("aria-colcount"))
        for at, below, above in lines:
            same = at // columns == matches // columns
            self.assertEqual((below, above), (same and at < matches, same and at >= matches), at)
        self.shot("threshold")
        page.locator(f"main .lists [role=gridcell][data-index='{min(matches + near, 49)}']").scroll_into_view_if_needed()
        self.assertEqual(index("near"), matches + near)
        # The lines move with the columns.
        page.set_viewport_size({"width": 700, "height": 860})
        page.wait_for_timeout(300)
        self.assertEqual(index("match"), matches)

    def test_a_list_without_a_match_says_so(self):
        for item in self.items:
            answer = self.server.get(f"/api/v1/items/{item['id']}/similar?k=5")
            if not answer["matches"]:
                break
        page = self.open(f"#view=ranked&ids={item['id']}&k=5&side=none")
        self.results()
        expect(page.locator("main .decided")).to_have_text("no match")
        expect(page.locator("main .bound.match")).to_have_count(1)
        self.shot("no-match")


class ThresholdDark(Threshold):
    settings = DARK

    def shot(self, name):
        super().shot(f"{name}-dark")


class ThresholdPhone(Threshold):
    size = {"width": 390, "height": 844}
    settings = PHONE

    def shot(self, name):
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 390)
        super().shot(f"{name}-phone")

    def test_the_marks_and_lines_of_the_ranked_list_are_those_of_the_threshold(self):
        item, marks = self.with_all_three()
        page = self.open(f"#view=ranked&ids={item}&k=50&side=none")
        self.results()
        # Two columns: the line may be below the screen.
        for _ in range(marks.count("match") // 2 + 1):
            page.keyboard.press("ArrowDown")
        expect(page.locator("main .bound.match")).to_have_count(1)
        self.shot("threshold")


class Histogram(RunTest):
    """The histogram of distances, and a range of it as a filter."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        cls.serve("--gallery", cls.embeddings)

    def begin(self):
        self.item = self.items[0]["id"]
        all_of = self.server.get(f"/api/v1/items/{self.item}/similar?k=1000&histogram=60")
        self.histogram = all_of["histogram"]
        self.width = (self.histogram["high"] - self.histogram["low"]) / 60
        page = self.open(f"#view=ranked&ids={self.item}&k=1000&side=none")
        self.results()
        page.get_by_role("button", name="Distances").click()
        expect(page.locator(".histogram")).to_be_visible()
        return page

    def distances(self):
        expect(self.page.locator("main .view")).to_have_attribute("aria-busy", "false")
        return [float(distance) for _, _, distance in self.results()]

    def edge(self, bar):
        return self.histogram["low"] + bar * self.width

    def test_the_bars_are_all_items_of_the_gallery(self):
        page = self.begin()
        self.assertTrue(self.histogram["complete"])
        self.assertEqual((self.histogram["total"], sum(self.histogram["counts"])), (1199, 1199))
        self.assertEqual(sum(self.histogram["right"]), 19)
        expect(page.locator(".histogram")).to_contain_text("1,199 items")
        expect(page.locator(".histogram .right")).to_have_count(sum(count > 0 for count in self.histogram["counts"]))
        self.shot("histogram")

    def test_a_drag_over_the_bars_shows_the_results_of_that_range(self):
        page = self.begin()
        box = page.locator(".field-of-bars").bounding_box()
        at = lambda bar: (box["x"] + box["width"] * bar / 60, box["y"] + 40)
        page.mouse.move(*at(20.2))
        page.mouse.down()
        page.mouse.move(*at(29.8), steps=6)
        page.mouse.up()
        wanted = sum(self.histogram["counts"][20:30])
        expect(page.locator(".histogram")).to_contain_text(f"{wanted} items of 1,199 items")
        expect(page.locator("main .bar")).to_contain_text(f"{wanted} nearest")
        found = self.distances()
        self.assertTrue(all(self.edge(20) - 0.002 <= d <= self.edge(30) + 0.002 for d in found), found)
        self.shot("histogram-range")
        # The link holds the range; an end is dragged; another query forgets the range.
        self.open("#" + page.url.split("#")[1])
        expect(page.locator("main .bar")).to_contain_text(f"{wanted} nearest")
        page.mouse.move(*at(30))
        page.mouse.down()
        page.mouse.move(*at(25), steps=6)
        page.mouse.up()
        expect(page.locator("main .bar")).to_contain_text(f"{sum(self.histogram['counts'][20:25])} nearest")
        page.get_by_role("button", name="All distances").click()
        expect(page.locator(".histogram")).to_contain_text("1,199 items, distances")
        self.assertNotIn("from=", page.url)

    def test_the_keyboard_moves_the_ends(self):
        page = self.begin()
        low, high = page.get_by_role("slider", name="Smallest distance"), page.get_by_role("slider", name="Largest distance")
        high.focus()
        for _ in range(4):
            page.keyboard.press("PageDown")
        low.focus()
        page.keyboard.press("PageUp")
        page.keyboard.press("ArrowLeft")
        expect(low).to_have_attribute("aria-valuenow", "9")
        expect(high).to_have_attribute("aria-valuenow", "20")
        expect(page.locator("main .bar")).to_contain_text(f"{sum(self.histogram['counts'][9:20])} nearest")
        page.keyboard.press("Escape")
        expect(low).to_have_attribute("aria-valuenow", "0")
        page.get_by_role("button", name="Distances").click()
        expect(page.locator(".histogram")).to_be_hidden()


class HistogramDark(Histogram):
    settings = DARK

    def shot(self, name):
        super().shot(f"{name}-dark")


class HistogramPhone(Histogram):
    size = {"width": 390, "height": 844}
    settings = PHONE

    def shot(self, name):
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 390)
        super().shot(f"{name}-phone")


class Clusters(RunTest):
    """The names of clusters on the map."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        cls.serve("--gallery", cls.embeddings)

    def boxes(self):
        return self.page.locator(".names .name").evaluate_all("names => names.map(n => { const b = n.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom, n.textContent]; })")

    def apart(self):
        """The names overlap neither each other nor the tools, and lie inside the map."""
        boxes = self.boxes()
        other = self.page.locator(".map-tools, .legend").evaluate_all("all => all.filter(e => e.offsetWidth).map(e => { const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom, '']; })")
        stage = self.page.locator(".stage").bounding_box()
        for i, a in enumerate(boxes):
            self.assertTrue(stage["x"] - 1 <= a[0] and a[2] <= stage["x"] + stage["width"] + 1, a)
            for b in boxes[i + 1 :] + other:
                self.assertFalse(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3], f"{a} {b}")
        return [box[4] for box in boxes]

    def test_names_are_at_the_clusters_and_do_not_overlap(self):
        page = self.open("#view=map")
        expect(page.locator(".names .name").first).to_be_visible()
        far = self.apart()
        self.assertIn("Clusters: ", page.locator(".names").get_attribute("aria-label"))
        labels = {item["label"] for item in self.items} | {label for label in (entry["label"] for entry in self.server.get("/api/v1/labels?limit=1000")["labels"])}
        self.assertTrue(all(any(label.endswith(name.lstrip("…")) for label in labels) for name in far), far)
        self.shot("clusters")
        # Nearer, the clusters are finer.
        surface = page.get_by_role("application")
        surface.focus()
        for _ in range(4):
            page.keyboard.press("+")
        page.wait_for_timeout(500)
        near = self.apart()
        self.assertTrue(near)
        self.assertTrue(self.size["width"] < 400 or set(near) != set(far))
        self.shot("clusters-near")
        for _ in range(3):
            page.keyboard.press("ArrowLeft")
            page.wait_for_timeout(100)
            self.apart()

    def test_the_choice_of_names_is_part_of_the_link(self):
        page = self.open("#view=map")
        expect(page.locator(".names .name").first).to_be_visible()
        page.get_by_label("Names of clusters").select_option("none")
        expect(page.locator(".names .name")).to_have_count(0)
        self.assertIn("names=none", page.url)
        page.get_by_label("Names of clusters").select_option("characteristic")
        expect(page.locator(".names .name").first).to_be_visible()
        self.open("#" + page.url.split("#")[1])
        expect(page.get_by_label("Names of clusters")).to_have_value("characteristic")
        self.apart()

    def test_pictures_replace_the_dots_in_sight_and_are_few(self):
        asked = []
        self.page.on("request", lambda request: "/thumbnails/" in request.url and asked.append(request.url))
        page = self.open("#view=map")
        expect(page.locator(".names .name").first).to_be_visible()
        self.assertEqual(asked, [])
        page.get_by_role("application").focus()
        for _ in range(24):
            page.keyboard.press("+")
            page.wait_for_timeout(30)
            if page.locator(".pictures img").count():
                break
        expect(page.locator(".pictures img").first).to_be_visible()
        self.assertLessEqual(page.locator(".pictures img").count(), 70)
        self.assertLessEqual(len(set(asked)), 71)
        self.shot("map-pictures")


class ClustersDark(Clusters):
    settings = DARK

    def shot(self, name):
        super().shot(f"{name}-dark")


class ClustersPhone(Clusters):
    size = {"width": 390, "height": 844}
    settings = PHONE

    def shot(self, name):
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 390)
        super().shot(f"{name}-phone")


class Galleries(RunTest):
    """Two galleries on one server."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        folder = harness.work / "grey squares"
        folder.mkdir(exist_ok=True)
        for i in range(6):
            png(folder / f"{i}.png", 40 * i)
        file = harness.work / "squares.safetensors"
        gallerist("embed", "--run", cls.run_directory, "--images", folder, "--out", file)
        cls.serve("--gallery", cls.embeddings, "--gallery", f"grey & more={file}")

    def test_the_switcher_opens_the_other_gallery_and_back_returns(self):
        page = self.open()
        expect(page.locator("main .facts")).to_contain_text("1,200 images")
        switch = page.get_by_role("combobox", name="Gallery", exact=True)
        self.assertEqual(switch.locator("option").all_inner_texts(), ["run", "grey & more"])
        self.shot("galleries")
        switch.select_option("grey & more")
        expect(page.locator("main .facts")).to_contain_text("6 images")
        expect(page.locator("main .tile img").first).to_be_visible()
        self.assertGreater(page.locator("main .tile img").first.evaluate("async image => (await image.decode(), image.naturalWidth)"), 0)
        expect(switch).to_have_value("grey & more")
        page.locator("main .picture").first.click()
        expect(page.locator("main .bar")).to_contain_text("5 nearest")
        link = page.url
        self.shot("galleries-other")
        page.go_back()
        page.go_back()
        expect(page.locator("main .facts")).to_contain_text("1,200 images")
        self.open("#" + link.split("#")[1])
        expect(page.locator("main .bar")).to_contain_text("5 nearest")

    def test_an_upload_is_searched_in_the_other_gallery_too(self):
        page = self.open()
        page.locator("input[type=file]").set_input_files(self.query)
        self.results()
        switch = page.get_by_role("combobox", name="Gallery", exact=True)
        switch.focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator("main .bar")).to_contain_text("6 nearest")
        expect(page.locator(".one-query img")).to_have_count(1)

    def test_an_unknown_gallery_is_named_with_the_others(self):
        page = self.open("#gallery=nowhere")
        expect(page.locator("main .notice.error")).to_contain_text("there is no gallery `nowhere`")
        expect(page.locator("main .notice.error")).to_contain_text("`run`, `grey & more`")
        self.expected_errors = 1  # The browser itself notes the status of the answer.


class GalleriesDark(Galleries):
    settings = DARK

    def shot(self, name):
        super().shot(f"{name}-dark")


class GalleriesPhone(Galleries):
    size = {"width": 390, "height": 844}
    settings = PHONE

    def shot(self, name):
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 390)
        super().shot(f"{name}-phone")


class Columns(RunTest):
    """A gallery whose items have further columns."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        folder = harness.work / "shop"
        folder.mkdir(exist_ok=True)
        rows = ["path,label,price,shop,colour,added"]
        for i in range(24):
            png(folder / f"{i}.png", 10 * i)
            price = "" if i == 5 else i * 5 % 24
            rows.append(f"{i}.png,{'dress' if i % 3 else 'shoe'},{price},{'x' if i % 2 else '<b>y</b>'},{'red|blue' if i % 4 else 'red'},2024-05-{i + 1:02}")
        (folder / "list.csv").write_text("\n".join(rows) + "\n")
        file = harness.work / "shop.safetensors"
        gallerist("embed", "--run", cls.run_directory, "--images", folder / "list.csv", "--out", file)
        cls.serve("--gallery", file)

    def columns(self):
        """Price and shop of the results or items on the page, by the server."""
        names = self.names(self.page.locator("main [role=gridcell]"))
        by_name = {item["path"]: item["columns"] for item in self.items}
        return [by_name[re.search(r"\d+\.png", name).group()] for name in names]

    def test_a_condition_filters_the_gallery_and_the_results(self):
        page = self.open()
        expect(page.locator("main .facts")).to_contain_text("24 images")
        field = page.get_by_label("Condition")
        field.fill('price < 10 and shop = "x"')
        field.press("Enter")
        wanted = [c for c in (item["columns"] for item in self.items) if c.get("price", 99) < 10 and c["shop"] == "x"]
        expect(page.locator("main .facts")).to_contain_text(f"{len(wanted)} of 24")
        self.assertEqual(self.columns(), wanted)
        self.shot("where")
        page.locator("main .picture").first.click()
        self.results()
        self.assertTrue(all(c["price"] < 10 and c["shop"] == "x" for c in self.columns()))
        self.assertEqual(len(self.columns()), len(wanted) - 1)
        # The link holds the condition; an empty field removes it.
        self.open("#" + page.url.split("#")[1])
        self.results()
        expect(page.get_by_label("Condition")).to_have_value('price < 10 and shop = "x"')
        page.get_by_label("Condition").fill("")
        page.get_by_label("Condition").press("Enter")
        expect(page.locator("main .lists [role=gridcell]")).to_have_count(20)

    def test_a_wrong_condition_is_explained(self):
        page = self.open()
        page.get_by_label("Condition").fill("prise < 10")
        page.get_by_label("Condition").press("Enter")
        expect(page.locator("main .notice.error")).to_contain_text("did you mean `price`?")
        self.expected_errors = 1  # The browser itself notes the status of the answer.
        self.shot("where-error")

    def test_the_gallery_is_sorted_by_a_column(self):
        page = self.open()
        page.get_by_label("Sort by").select_option("-price")
        expect(page).to_have_url(re.compile("order=-price"))
        expect(page.locator("main [role=gridcell]").first).to_have_attribute("aria-label", re.compile(re.escape(max(self.items, key=lambda item: item["columns"].get("price", -1))["path"])))
        prices = [c.get("price") for c in self.columns()]
        self.assertEqual(prices, sorted((p for p in prices if p is not None), reverse=True) + [None])
        page.keyboard.press("Tab")
        self.shot("order")

    def test_the_values_of_an_item_are_shown_as_text(self):
        item = self.items[4]
        page = self.open(f"#view=gallery&open={item['id']}")
        facts = page.locator("dialog.item dl")
        for name, value in [("price", "20"), ("shop", "<b>y</b>"), ("added", "2024-05-05"), ("colour", "red")]:
            expect(facts).to_contain_text(name)
            expect(facts).to_contain_text(value)
        expect(facts.locator("b")).to_have_count(0)
        self.shot("columns")


class ColumnsDark(Columns):
    settings = DARK

    def shot(self, name):
        super().shot(f"{name}-dark")


class ColumnsPhone(Columns):
    # Tall enough for all rows, because only visible ones exist.
    size = {"width": 390, "height": 3000}
    settings = PHONE

    def shot(self, name):
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 390)
        super().shot(f"{name}-phone")


class Words(PageTest):
    """A gallery whose network has a text tower is searched by words. The program is built with the feature `onnx`."""

    @classmethod
    def setUpClass(cls):
        fixtures = harness.ROOT / "crates/gallerist-onnx/fixtures"
        cls.folder = harness.work / "words"
        images = cls.folder / "images"
        images.mkdir(parents=True, exist_ok=True)
        for shade in range(0, 250, 25):
            png(images / f"{shade}.png", shade)
        try:
            gallerist("model", "import", fixtures / "rows.onnx", "--set", "image.size=8", "--set", f"text.file={fixtures / 'text/clip.onnx'}",
                      "--set", f"text.tokenizer={fixtures / 'text/tokenizer.json'}", "--out", cls.folder / "run")
        except subprocess.CalledProcessError as error:
            if "without the engine" in error.stderr:
                raise unittest.SkipTest("the program was built without the feature onnx") from None
            raise
        cls.gallery = cls.folder / "words.safetensors"
        gallerist("embed", "--run", cls.folder / "run", "--images", images, "--out", cls.gallery)
        cls.server = Server("--gallery", cls.gallery)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def expected(self, text):
        found = json.loads(gallerist("search", "--gallery", self.gallery, "--text", text, "-k", 10, "--json"))
        return [result["path"].split("/")[-1] for result in found[0]["results"]]

    def test_words_give_the_ranked_list_of_the_command_line(self):
        page = self.open()
        field = page.get_by_role("searchbox", name="Search by words")
        field.fill("a red shoe")
        field.press("Enter")
        self.results()
        self.assertEqual(self.paths(), self.expected("a red shoe"))
        expect(page.locator(".one-query")).to_contain_text("a red shoe")
        self.shot("words")
        # The link brings them back.
        self.open("#" + page.url.split("#")[1])
        self.results()
        expect(page.get_by_role("searchbox", name="Search by words")).to_have_value("a red shoe")
        # A long text is cut, which the page says; an image replaces the words.
        page.get_by_role("searchbox", name="Search by words").fill("leather " * 40)
        page.get_by_role("searchbox", name="Search by words").press("Enter")
        expect(page.locator("#toast")).to_contain_text("first 16 tokens")
        page.locator("main .lists .picture").nth(2).click()
        expect(page.get_by_role("searchbox", name="Search by words")).to_have_value("")
        self.assertNotIn("text=", page.url)


class Scripts(RunTest):
    """A gallery in which every text is markup that would run a script."""

    @classmethod
    def setUpClass(cls):
        cls.train()
        folder = harness.work / "scripts"
        folder.mkdir(exist_ok=True)
        # A file name has no slash, and a value of CSV is quoted.
        cls.evil = lambda name: f"<img src=x onerror=\"window.ran='{name}'\"><svg onload=window.ran=1>{name}"
        cell = lambda text: '"' + text.replace('"', '""') + '"'
        rows = [",".join(map(cell, ["path", "label", "camera", cls.evil("column"), cls.evil("tags"), "price"]))]
        for i in range(24):
            name = f"{cls.evil(f'path{i}')}.png"
            png(folder / name, 10 * i)
            rows.append(",".join(map(cell, [name, cls.evil(f"label{i % 3}"), cls.evil("camera"), cls.evil(f"value{i % 2}"), cls.evil("a") + "|" + cls.evil("b"), str(i)])))
        (folder / "list.csv").write_text("\n".join(rows) + "\n")
        file = harness.work / "scripts.safetensors"
        gallerist("embed", "--run", cls.run_directory, "--images", folder / "list.csv", "--out", file)
        other = harness.work / "scripts other.safetensors"
        shutil.copy(file, other)
        # The name of a gallery has no `=` and no slash.
        cls.serve("--gallery", f"<u>first={file}", "--gallery", f"<u>second={other}", "--compare", f"<u>first={other}", "--training", other, "--writable", "--token", "secret")
        for kind in ["tags", "selections"]:
            path = f"/api/v1/saved/{kind}/{quote(cls.evil(kind), safe='')}"
            headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
            body = json.dumps({"add": [item["id"] for item in cls.items[:3]]}).encode()
            urlopen(Request(cls.server.url + path, body, headers), timeout=30).close()

    def check(self, page, where):
        page.wait_for_timeout(300)
        self.assertIsNone(page.evaluate("window.ran ?? null"), where)
        self.assertEqual(page.locator("img[onerror], svg[onload], body script").count(), 0, where)
        self.assertEqual(page.locator("img[src=x], u").count(), 0, where)

    def test_no_text_of_a_gallery_runs_in_any_view(self):
        item, evil = self.items[0]["id"], quote(type(self).evil("address"))
        views = ["gallery", f"ranked&ids={item}", f"map&ids={item}&side=ranked", "map&names=by:" + quote(type(self).evil("column")), "failures", "confusions", "duplicates", "leaks", "compare", f"gallery&open={item}"]
        views += [f"ranked&ids={item}&group=" + quote(type(self).evil("column")), "gallery&order=" + quote(type(self).evil("column")), "gallery&saved=tags:" + quote(type(self).evil("tags"))]
        for view in views:
            page = self.open("#view=" + view)
            page.wait_for_load_state("networkidle")
            self.check(page, view)
        expect(page.locator("main .tags").first).to_contain_text("<img src=x")
        page.get_by_role("button", name="Saved", exact=True).click()
        expect(page.locator("dialog.saved")).to_contain_text("<svg onload")
        self.check(page, "saved")
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        expect(page.locator("#labels li").first).to_contain_text("<img src=x")
        self.check(page, "labels")
        self.shot("scripts")
        # Errors of the server name what was asked for.
        for name in ["label", "camera", "where", "order", "group", "saved", "text", "upload", "ids", "open", "class", "sel", "names", "lasso", "crop"]:
            page = self.open(f"#view=ranked&ids={item}&{name}={evil}")
            self.check(page, name)
        page = self.open(f"#gallery={evil}")
        self.check(page, "gallery")
        # The console names the requests that are refused.
        self.expected_errors = len(self.errors_without(r"status of (400|404|501)"))
        self.assertEqual(self.expected_errors, 0)
        self.errors.clear()

    def errors_without(self, known):
        return [error for error in self.errors if not re.search(known, error)]
