#!/usr/bin/env python3
"""What ships for Prometheus and Grafana asks only for families and labels that docs/metrics.md names."""
import json
import re

from house import report, require, text_of

FOLDER = "examples/monitoring"
ROW = re.compile(r"^\| `(gradsieve_\w+)` \| (gauge|counter) \|([^|]*)\|", flags=re.M)
METRIC = re.compile(r"gradsieve_\w+")
# Labels in a selector, and those that a query groups or matches by.
SELECTED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
TARGET_LABELS = {"instance"}  # Prometheus adds them; it also adds `job`, which is none of ours


def families():
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(text_of("docs/metrics.md"))}


def query_faults(where, query, shown, known):
    """`shown`: the labels that the text beside the query names."""
    faults, labels = [], set(TARGET_LABELS)
    for metric in METRIC.findall(query):
        name = metric.removesuffix("_total")
        if name not in known:
            faults.append(f"{where}: '{metric}' is no family of docs/metrics.md")
            continue
        kind, own = known[name]
        labels |= own
        if (kind == "counter") != metric.endswith("_total"):
            faults.append(f"{where}: '{metric}' is a {kind}; counters end in _total and gauges do not")
    asked = SELECTED.findall(query) + [name.strip() for group in GROUPED.findall(query) for name in group.split(",")]
    if METRIC.search(query):  # else it is about another program's metrics
        faults += [f"{where}: '{label}' is no label of '{query}'" for label in {*asked, *shown} - labels]
    return faults


def alert_queries():
    for alert in text_of(f"{FOLDER}/alerts.yml").split("- alert: ")[1:]:
        name = alert.split("\n")[0]
        yield f"alerts.yml, {name}", re.search(r"expr: (.*)", alert)[1], re.findall(r"\$labels\.(\w+)", alert)


def dashboard_queries():
    dashboard = json.loads(text_of(f"{FOLDER}/grafana-dashboard.json"))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
            yield f"grafana-dashboard.json, ${variable['name']}", metric, [label]
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"grafana-dashboard.json, '{panel['title']}'", target["expr"], re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])


def main():
    known = families()
    sample = {"gradsieve_a": ("gauge", {"peer"}), "gradsieve_b": ("counter", set())}
    good = 'gradsieve_a{peer=~"x"} + on(instance) sum by (instance, peer) (rate(gradsieve_b_total[5m]))'
    require(not query_faults("", good, ["peer"], sample), "it refuses a good query")
    for bad, shown in (("gradsieve_c", []), ("gradsieve_a_total", []), ("gradsieve_b", []), ('gradsieve_a{job="x"}', []),
                       ("sum by (job) (gradsieve_a)", []), ("gradsieve_a", ["job"])):
        require(query_faults("", bad, shown, sample), f"it takes '{bad}' beside {shown}")
    alerts, panels = list(alert_queries()), list(dashboard_queries())
    require(len(alerts) >= 7 and len(panels) >= 20 and len(known) >= 35,
            f"it finds {len(alerts)} alerts, {len(panels)} queries of the dashboard and {len(known)} families: the patterns miss some")
    queries = alerts + panels
    report("monitoring_test", len(queries), [fault for query in queries for fault in query_faults(*query, known)])


main()
