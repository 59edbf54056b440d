# SPDX-License-Identifier: Apache-2.0
"""The content of matplotlib figures as data: axes, series and labels.

A chart is a dict with `type` (line, scatter, bar, pie, box_and_whisker, superchart, unknown), `title`
and `elements`, and all but the last three types and pie with the labels, units, ticks and scales of
their axes. Nothing here imports matplotlib: it works with the objects of a figure.
"""

import builtins

__builtins__ = dict(vars(builtins))  # a copy, which user code does not change

from math import isfinite

POINTS_MAX = 50_000  # a figure with more points has no chart


class Budget:
    def __init__(self):
        self.left = POINTS_MAX

    def take(self, n):
        self.left -= n
        if self.left < 0:
            raise ValueError("it has more than %d points" % POINTS_MAX)


def chart_of(figure):
    """Return the figure's chart, or None if it has no axes. Raise ValueError for too many points."""
    budget = Budget()
    charts = [axes_chart(axes, budget) for axes in figure.axes if is_chart(axes)]
    if len(charts) == 1:
        if not charts[0]["title"]:
            charts[0]["title"] = figure_title(figure)
        return charts[0]
    if not charts:
        return None
    return {"type": "superchart", "title": figure_title(figure), "elements": charts}


def is_chart(axes):
    return not hasattr(axes, "_colorbar")


def figure_title(figure):
    title = getattr(figure, "_suptitle", None)
    return title.get_text() if title is not None and title.get_text() else None


def axes_chart(axes, budget):
    title = axes.get_title() or None
    for kind, find in (
        ("pie", pie),
        ("box_and_whisker", boxes),
        ("bar", bars),
        ("scatter", scatter),
        ("line", lines),
    ):
        elements = find(axes, budget) if axes.name == "rectilinear" else None  # not 3D or polar
        if not elements:
            continue
        chart = {"type": kind, "title": title, "elements": elements}
        if kind != "pie":
            chart.update(labels(axes))
        if kind in ("line", "scatter"):
            chart.update(scale(axes, "x"))
            chart.update(scale(axes, "y"))
        return chart
    return {"type": "unknown", "title": title, "elements": []}


# ---- axes -------------------------------------------------------------------------------------


def split_unit(text):
    """Split a label like "speed (m/s)" or "speed [m/s]" into the label and its unit."""
    for opening, closing in ("()", "[]"):
        at = text.rfind(opening)
        if text.endswith(closing) and 0 < at < len(text) - 2:
            return text[:at].strip(), text[at + 1 : -1].strip()
    return text, None


def labels(axes):
    x, x_unit = split_unit(axes.get_xlabel())
    y, y_unit = split_unit(axes.get_ylabel())
    return {"x_label": x or None, "y_label": y or None, "x_unit": x_unit, "y_unit": y_unit}


def converter(axis):
    get = getattr(axis, "get_converter", None)
    found = get() if get else getattr(axis, "converter", None)
    return type(found).__name__


def axis_of(axes, letter):
    return axes.xaxis if letter == "x" else axes.yaxis


def scale_of(axis):
    name = converter(axis)
    if "Date" in name:
        return "datetime"
    return "categorical" if "Category" in name else axis.get_scale()


def scale(axes, letter):
    axis = axis_of(axes, letter)
    kind = scale_of(axis)
    return {
        letter + "_ticks": [coordinate(axis, kind, at) for at in axis.get_ticklocs()],
        letter + "_tick_labels": [text.get_text() for text in axis.get_ticklabels()],
        letter + "_scale": kind,
    }


def number(value):
    """Return a number that JSON can express, else None."""
    value = float(value)
    if not isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def coordinate(axis, kind, value):
    """Return a coordinate as its user gave it: a number, a time in ISO 8601, or a category."""
    if kind == "datetime":
        from matplotlib.dates import num2date

        try:
            return num2date(float(value)).isoformat()
        except (ValueError, OverflowError):
            return None
    if kind == "categorical":
        for name, at in getattr(axis.units, "_mapping", {}).items():
            if at == value:
                return str(name)
    return number(value)


def points(axes, pairs, budget):
    budget.take(len(pairs))
    x_kind, y_kind = scale_of(axes.xaxis), scale_of(axes.yaxis)
    return [
        [coordinate(axes.xaxis, x_kind, x), coordinate(axes.yaxis, y_kind, y)] for x, y in pairs
    ]


def own_label(artist, default=None):
    label = str(artist.get_label())
    return default if label.startswith("_") else label


# ---- series -----------------------------------------------------------------------------------


def kind_name(thing):
    return {base.__name__ for base in type(thing).__mro__}


def lines(axes, budget):
    found = []
    for line in axes.lines:
        pairs = list(zip(line.get_xdata(orig=False), line.get_ydata(orig=False)))
        if pairs and line.get_transform().contains_branch(axes.transData):
            label = own_label(line, "Line %d" % (len(found) + 1))
            found.append({"label": label, "points": points(axes, pairs, budget)})
    return found


def scatter(axes, budget):
    found = []
    for group in axes.collections:
        if "PathCollection" in kind_name(group):
            pairs = [tuple(pair) for pair in group.get_offsets()]
            label = own_label(group, "Group %d" % (len(found) + 1))
            found.append({"label": label, "points": points(axes, pairs, budget)})
    return found


def bars(axes, budget):
    found = []
    groups = [group for group in axes.containers if "BarContainer" in kind_name(group)]
    for at, group in enumerate(groups):
        flat = getattr(group, "orientation", "vertical") == "horizontal"
        axis = axes.yaxis if flat else axes.xaxis
        kind = scale_of(axis)
        ticks = named_ticks(axis)
        budget.take(len(group.patches))
        for bar in group.patches:
            corner, size = bar.get_xy(), (bar.get_width(), bar.get_height())
            middle = corner[flat] + size[flat] / 2
            shown = coordinate(axis, kind, middle)
            # Bars of several groups stand beside the tick that names them.
            near = min(ticks, key=lambda tick: abs(tick[0] - middle), default=None)
            label = shown if kind == "categorical" or near is None else near[1]
            value = size[not flat]
            name = own_label(group, "Group %d" % (at + 1) if len(groups) > 1 else None)
            found.append({"label": str(label), "group": name, "value": number(value)})
    return found


def named_ticks(axis):
    """Return places and texts of the ticks that the user gave a text."""
    if type(axis.get_major_formatter()).__name__ not in ("FixedFormatter", "FuncFormatter"):
        return []
    ticks = zip(axis.get_ticklocs(), axis.get_ticklabels())
    return [(float(at), text.get_text()) for at, text in ticks if text.get_text()]


def pie(axes, budget):
    wedges = [patch for patch in axes.patches if "Wedge" in kind_name(patch)]
    budget.take(len(wedges))
    return [
        {
            "label": own_label(wedge, None),
            "angle": number(abs(wedge.theta2 - wedge.theta1)),
            "radius": number(wedge.r),
        }
        for wedge in wedges
    ]


# ---- boxes ------------------------------------------------------------------------------------


def boxes(axes, budget):
    """Find box plots by their lines: matplotlib keeps nothing else of them in the figure. A box is a
    closed line of five points or a patch, followed by its two whiskers, two caps and its median.
    """
    found = []
    for box, whiskers, median, fliers in box_parts(axes):
        x, y = box
        upright = is_flat(median[1])
        values = y if upright else x
        ends = [w[1] if upright else w[0] for w in whiskers]
        at = median[0] if upright else median[1]
        axis = axes.xaxis if upright else axes.yaxis
        outliers = [] if fliers is None else list(fliers[1] if upright else fliers[0])
        budget.take(5 + len(outliers))
        found.append(
            {
                "label": box_label(axis, (at[0] + at[-1]) / 2),
                "min": number(min(ends[0])),
                "first_quartile": number(min(values)),
                "median": number((median[1] if upright else median[0])[0]),
                "third_quartile": number(max(values)),
                "max": number(max(ends[1])),
                "outliers": [number(value) for value in outliers],
            }
        )
    return found


def is_flat(values):
    return len(values) == 2 and values[0] == values[1]


def data_of(line):
    return list(map(float, line.get_xdata(orig=False))), list(map(float, line.get_ydata(orig=False)))


def box_parts(axes):
    """Yield the box, whiskers, median and outliers of each box plot in the axes."""
    all_lines = list(axes.lines)
    outlines = [patch for patch in axes.patches if "PathPatch" in kind_name(patch)]
    at = 0
    while at < len(all_lines):
        x, y = data_of(all_lines[at])
        closed = len(x) >= 5 and (x[0], y[0]) == (x[-1], y[-1])
        if closed:
            box, at = (x, y), at + 1
        elif outlines and len(x) == 2:
            path = outlines[0].get_path().vertices
            box = [float(v[0]) for v in path[:-1]], [float(v[1]) for v in path[:-1]]
        else:
            return
        parts = [data_of(line) for line in all_lines[at : at + 6]]
        if len(parts) < 5 or any(len(part[0]) != 2 for part in parts[:5]):
            return
        if not closed:
            outlines.pop(0)
        has_fliers = len(parts) == 6 and is_fliers(all_lines[at + 5])
        yield box, parts[:2], parts[4], parts[5] if has_fliers else None
        at += 6 if has_fliers else 5


def is_fliers(line):
    return line.get_linestyle() in ("None", "none", "", " ")


def box_label(axis, at):
    for place, text in named_ticks(axis):
        if abs(place - at) < 1e-6:
            return text
    return str(number(at))
