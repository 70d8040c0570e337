package cli

import "strings"

// examples are what each verb is used for, with what comes of it; the program has no name
// yet. The verbs say which store they mean by flags, here as by themselves.
var examples = map[string][]string{
	"ui":                {"ui", "ui --store dir:snapshots --state state.json --address localhost:8080"},
	"status":            {"status", "status -w", "status --store 'git+file:///srv/edge.git?branch=edge' --state state.json -o json"},
	"wait":              {"wait --for rollout", "wait --for snapshot=r12 --timeout 15m", "wait --for condition=Ready"},
	"history":           {"history", "history --acts --since 2h", "history --limit 5 -o json"},
	"audit":             {"audit --since 30d", "audit --since 2026-01-01 -o csv"},
	"show":              {"show head", "show r12 --file haproxy.cfg"},
	"diff":              {"diff r11 r12", "diff r12 manifests", "diff cluster:staging cluster:production --exit-code"},
	"explain":           {"explain haproxy.cfg:120 -f manifests", "explain maps/host.map:3"},
	"explain request":   {"explain request https://shop.example.com/cart", "explain request POST http://shop.example.com/ --header X-Canary=always --at 'yesterday 14:03'", "explain request https://shop.example.com/ -f manifests"},
	"verify":            {"verify", "verify --allowed-signers signers"},
	"check":             {"check --instances fleet.yaml"},
	"pin":               {"pin r12 --reason 'incident 4711'", "pin head"},
	"unpin":             {"unpin --reason 'mended in r15'"},
	"override":          {"override r12 --for 2h --reason 'maintenance window'", "override --end"},
	"rollback":          {"rollback --reason 'checkout answers 502' --wait", "rollback --to r12"},
	"approve":           {"approve r12"},
	"reject":            {"reject r12 --reason 'drops the header X-Request-Id'", "reject r12 --fleet edge-eu"},
	"retry":             {"retry", "retry r12"},
	"pause":             {"pause --reason 'peak hours'"},
	"resume":            {"resume"},
	"promote":           {"promote", "promote r12 --full"},
	"abort":             {"abort --reason 'error rate of edge-1'"},
	"confirm-endpoints": {"confirm-endpoints", "confirm-endpoints 3f9a2c"},
	"render":            {"render -f manifests -o out", "render -f manifests --config config.yaml -o 'git+file:///srv/edge.git?branch=edge'"},
	"test":              {"test", "test tests/checkout.yaml --run headers"},
	"migrate":           {"migrate -f manifests", "migrate -f manifests -o manifests --class hapsnap", "migrate -f manifests --to gateway --gateway infra/web -o gateway"},
	"gc":                {"gc --dry-run", "gc --keep 50 --min-age 3d"},
	"sign":              {"sign --signing-key ~/.ssh/id_ed25519"},
	"recover":           {"recover --from-instance edge-1 --instances fleet.yaml"},
	"accept-rewind":     {"accept-rewind --reason 'the repository was restored from Monday'"},
}

// examplesOf returns the examples of a verb as a help text has them.
func examplesOf(verb, name string) string {
	var lines []string
	for _, line := range examples[verb] {
		lines = append(lines, "  "+name+" "+line)
	}
	return strings.Join(lines, "\n")
}
