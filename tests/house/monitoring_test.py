#!/usr/bin/env python3
"""What ships for Prometheus and Grafana asks only for families and labels that docs/metrics.md names."""
import json
import re

from house import ROOT, report, text_of

FOLDER = "examples/monitoring"
ROW = re.compile(r"^\| `(gradsieve_\w+)` \| (gauge|counter) \|([^|]*)\|", flags=re.M)
SELECTOR = re.compile(r"(gradsieve_\w+)(\{[^}]*\})?")
TARGET_LABELS = {"instance"}  # Prometheus adds them


def families():
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(text_of("docs/metrics.md"))}


def expression_faults(where, expression, legend, known):
    faults, labels = [], set(TARGET_LABELS)
    for metric, selector in SELECTOR.findall(expression):
        name = metric.removesuffix("_total")
        if name not in known:
            faults.append(f"{where}: '{metric}' is no family of docs/metrics.md")
            continue
        kind, own = known[name]
        labels |= own
        if (kind == "counter") != metric.endswith("_total"):
            faults.append(f"{where}: '{metric}' is a {kind}; counters end in _total and gauges do not")
        for label in re.findall(r"(\w+)\s*[=!]", selector):
            if label not in own | TARGET_LABELS:
                faults.append(f"{where}: '{metric}' has no label '{label}'")
    faults += [f"{where}: '{{{{{label}}}}}' is no label of '{expression}'" for label in legend if label not in labels]
    return faults


def main():
    known, faults, checked = families(), [], 0
    for expression, text in re.findall(r"expr: (.*)\n.*?summary: (.*)", text_of(f"{FOLDER}/alerts.yml"), flags=re.S):
        expression = expression.split("\n")[0]
        legend = re.findall(r"\$labels\.(\w+)", text.split("\n")[0])
        faults += expression_faults("alerts.yml", expression, legend, known)
        checked += 1
    dashboard = json.loads((ROOT / FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
    names = [panel["id"] for panel in dashboard["panels"]]
    if len(set(names)) != len(names):
        faults.append("grafana-dashboard.json: two panels have one id")
    for variable in dashboard["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
        faults += expression_faults(f"grafana-dashboard.json, ${variable['name']}", metric, [label], known)
        checked += 1
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            legend = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            faults += expression_faults(f"grafana-dashboard.json, '{panel['title']}'", target["expr"], legend, known)
            checked += 1
    if checked < 20 or len(known) < 35:
        faults.append(f"only {checked} expressions and {len(known)} families were found: this test does not see them")
    report("monitoring_test", checked, faults)


main()
