package difference

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	t.Parallel()
	d, err := Compare(sideOf(config), sideOf(edited("roundrobin", "leastconn")))
	if err != nil {
		t.Fatal(err)
	}
	r := d.Report("old", "new")
	r.Decides.Objects = []string{"Ingress a/1", "Ingress a/2", "Ingress a/3", "Ingress a/4", "Ingress a/5"}
	r.Why = "it is so"
	body := "@@ -2,6 +2,6 @@\n defaults main\n     mode http\n backend shop_web_http from main\n-    balance roundrobin\n+    balance leastconn\n" +
		"     #hapsnap servers shop/web:http weight=90\n     #hapsnap servers shop/next:http weight=10\n"
	verdict := "reload: haproxy.cfg:5: +    balance leastconn\n\tIngress a/1\n\tIngress a/2\n\tIngress a/3\n\tand 2 more objects\n\tit is so\n"
	expectPrinted(t, r, false, "--- a/haproxy.cfg\tside\n+++ b/haproxy.cfg\tside\n"+body+verdict)
	painted := strings.NewReplacer(
		"@@ -2,6 +2,6 @@", "\x1b[36m@@ -2,6 +2,6 @@\x1b[m",
		"-    balance roundrobin", "\x1b[31m-    balance roundrobin\x1b[m",
		"+    balance leastconn", "\x1b[32m+    balance leastconn\x1b[m",
	).Replace(body)
	expectPrinted(t, r, true, "\x1b[1m--- a/haproxy.cfg\tside\x1b[m\n\x1b[1m+++ b/haproxy.cfg\tside\x1b[m\n"+painted+verdict)
}

// A removed line that begins like a header has the colour of a removed line.
func TestReportOfLinesLikeHeaders(t *testing.T) {
	t.Parallel()
	d, err := Compare(sideOf(config, "files/a", "-- x\n"), sideOf(config))
	if err != nil {
		t.Fatal(err)
	}
	r := d.Report("old", "new")
	var out strings.Builder
	if err := r.Print(&out, true); err != nil || !strings.Contains(out.String(), "\x1b[31m--- x\x1b[m\n") {
		t.Errorf("printed %q: %v", out.String(), err)
	}
	if r.Decides.Side != "a" || !strings.HasSuffix(out.String(), "reload: files/a:1: --- x\n") {
		t.Errorf("printed %q", out.String())
	}
}

func TestReportOfNoDifference(t *testing.T) {
	t.Parallel()
	d, err := Compare(sideOf(config), sideOf(config))
	if err != nil {
		t.Fatal(err)
	}
	expectPrinted(t, d.Report("a", "b"), true, "nothing\n")
}

func expectPrinted(t *testing.T, r Report, coloured bool, want string) {
	t.Helper()
	var out strings.Builder
	if err := r.Print(&out, coloured); err != nil || out.String() != want {
		t.Errorf("printed (%v)\n%q\nwant\n%q", err, out.String(), want)
	}
}
