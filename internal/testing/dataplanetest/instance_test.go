package dataplanetest

import (
	"testing"
)

func TestOlderReload(t *testing.T) {
	for _, tt := range []struct {
		id, last string
		want     bool
	}{
		{"2026-11-21-0", "2026-11-21-3", true},
		{"2026-11-21-4", "2026-11-21-3", false},
		{"2026-11-20-9", "2026-11-21-3", true},
		{"2026-11-22-1", "2026-11-21-3", true}, // the API's own mistake
		{"2026-11-22-9", "2026-11-21-3", false},
		{"force", "2026-11-21-3", false},
		{"x-1", "2026-11-21-3", false},
		{"2026-11-21-x", "2026-11-21-3", false},
	} {
		if got := olderReload(tt.id, tt.last); got != tt.want {
			t.Errorf("olderReload(%s, %s) = %v", tt.id, tt.last, got)
		}
	}
}

func TestAlertsAreAllThatIsKept(t *testing.T) {
	got := alerts("[NOTICE]   (1) : haproxy version is 2.6\n" +
		"[WARNING]  (1) : config : a warning\n" +
		"[ALERT]    (1) : config : parsing [f:5] : unknown keyword 'x' in 'global' section\n" +
		"  continued\n" +
		"[ALERT]    (1) : config : Fatal errors found in configuration.\n")
	want := "msg=\"config parsing [f:5] unknown keyword 'x' in 'global' section\"\n" +
		"msg=\"config Fatal errors found in configuration.\""
	if got != want {
		t.Errorf("kept %s\nwant %s", got, want)
	}
}

func TestRefusalsWithoutASeverity(t *testing.T) {
	for _, tt := range []struct {
		command, out string
		refused      bool
	}{
		{"set server b/s state ready", "", false},
		{"set server b/s state ready", "No such server.", true},
		{"set server b/s addr 1.2.3.4 port 5", "IP changed from '1' to '2' by 'stats socket command'", false},
		{"set server b/s addr 1.2.3.4 port 5", "no need to change the addr", false},
		{"set server b/s weight 999", "Absolute weight can only be between 0 and 256 inclusive.", true},
		{"add server b/s 1.2.3.4:5", "New server registered.", false},
		{"add server b/s 1.2.3.4:5", "Already exists a server with the same name in backend.", true},
		{"del server b/s", "Server deleted.", false},
		{"set ssl cert /x <<", "Transaction created for certificate /x!", false},
		{"set ssl cert /x <<", "Can't replace a certificate which is not referenced by the configuration!", true},
		{"show servers state b", "1\n# be_id", false},
		{"show servers state b", "Can't find backend.", true},
		{"show map /x", "Unknown map identifier. Please use #<id> or <file>.", true},
	} {
		if got := refusedByWorker(tt.command, tt.out); got != tt.refused {
			t.Errorf("%s: %q refused: %v", tt.command, tt.out, got)
		}
	}
}

func TestRefusalsBySeverity(t *testing.T) {
	for out, want := range map[string]string{
		"":                                 "",
		"1\n# be_id":                       "1\n# be_id",
		"[6]: New server registered.":      "New server registered.",
		"[4]: IP changed from '1' to '2'.": "IP changed from '1' to '2'.",
	} {
		if got, err := bySeverity("cmd", out); err != nil || got != want {
			t.Errorf("%q became %q, %v", out, got, err)
		}
	}
	if _, err := bySeverity("cmd", "[3]: No such server."); !isRefusal(err) || err.Error() != "[3] No such server. [cmd]" {
		t.Errorf("the refusal is %v", err)
	}
}

func TestRuntimeCommands(t *testing.T) {
	for _, tt := range []struct {
		words   []string
		command string
		known   bool
	}{
		{[]string{"SetServerAddr", "b", "s", "1.2.3.4", "80"}, "set server b/s addr 1.2.3.4 port 80", true},
		{[]string{"SetServerState", "b", "s", "ready", "more"}, "set server b/s state ready", true},
		{[]string{"SetServerState", "b", "s"}, "", true},
		{[]string{"SetServerMood", "b", "s", "good"}, "", false},
		{[]string{""}, "", false},
	} {
		if command, known := runtimeCommand(tt.words); command != tt.command || known != tt.known {
			t.Errorf("%v became %q, %v", tt.words, command, known)
		}
	}
}
