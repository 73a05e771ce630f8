"""Small SVG charts: panels below each other with one axis of time or of steps."""

from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, GAP = 860, 120, 64, 34
COLOURS = ["#3566b0", "#c65d21", "#3b8a4d", "#7c4fa0"]
POINTS = 300


def ticks(top):
    step = 10 ** len(str(int(top))) / 10 if top >= 1 else 0.1
    for share in (5, 2, 1, 0.5, 0.2):
        if top / (step * share) >= 2:
            step *= share
            break
    return [step * at for at in range(int(top / step) + 1)]


def thinned(points):
    """At most so many points; of each group the largest value, so that no peak is lost."""
    size = -(-len(points) // POINTS)
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [max(group, key=lambda point: point[1]) for group in groups]


def panels(title, axis, rows):
    """`rows`: of each panel its name and its lines; a line is a name and points (x, y)."""
    right = max(x for _, lines in rows for _, points in lines for x, _ in points)
    height = 30 + len(rows) * (HEIGHT + GAP) + 14
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + LEFT + 20} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{LEFT}" y="16" font-size="13">{escape(title)}</text>',
    ]
    for number, (name, lines) in enumerate(rows):
        top = 44 + number * (HEIGHT + GAP)
        most = 1.05 * max(max(y for _, points in lines for _, y in points), 1e-9)
        x = lambda value: round(LEFT + WIDTH * value / right, 1)
        y = lambda value: round(top + HEIGHT - HEIGHT * value / most, 1)
        out.append(f'<text x="{LEFT}" y="{top - 6}">{escape(name)}</text>')
        for value in ticks(most):
            out.append(f'<path d="M{LEFT} {y(value)}h{WIDTH}" stroke="#ddd"/><text x="{LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{value:,.10g}</text>')
        for at, (label, points) in enumerate(lines):
            colour = COLOURS[at % len(COLOURS)]
            path = "M" + "L".join(f"{x(a)} {y(b)}" for a, b in thinned(points))
            out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
            if len(lines) > 1:
                out.append(f'<text x="{LEFT + WIDTH - 130 * (len(lines) - 1 - at)}" y="{top - 6}" text-anchor="end" fill="{colour}">{escape(label)}</text>')
    for value in ticks(right):
        out.append(f'<text x="{round(LEFT + WIDTH * value / right, 1)}" y="{height - 24}" text-anchor="middle">{value:,.10g}</text>')
    out.append(f'<text x="{LEFT + WIDTH / 2}" y="{height - 8}" text-anchor="middle">{escape(axis)}</text></svg>')
    return "\n".join(out) + "\n"
