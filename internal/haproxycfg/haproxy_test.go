package haproxycfg_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// What HAProxy says of a line, by its number.
var said = regexp.MustCompile(`(?m)^\[(?:WARNING|ALERT)\].* parsing \[[^\]]*:(\d+)\] ?: (.*)$`)

// haproxySays returns what HAProxy says of each line of a configuration.
func haproxySays(t *testing.T, config string) map[int]string {
	t.Helper()
	program := os.Getenv("HAPROXY")
	if program == "" {
		program = "haproxy"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		if path, err = exec.LookPath(filepath.Join("/usr/sbin", program)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command(path, "-c", "-f", file).CombinedOutput()
	found := map[int]string{}
	for _, match := range said.FindAllStringSubmatch(string(out), -1) {
		number, err := strconv.Atoi(match[1])
		if err != nil {
			t.Fatal(err)
		}
		found[number] = match[2]
	}
	return found
}

// mostFaults is how many lines HAProxy refuses before it stops reading: 20, minus some that this test expects
// to be good.
const mostFaults = 10

var pieces = []string{
	"a", "b-c", "/x.y", "1", " ", "  ", "\t", "\v", "\f", "\r", `"`, `"`, `'`, `'`, `\`, `\\`, `\ `, `\"`, `\'`, `\#`, `\$`, `\t`, `\x41`, `\x4`,
	`\xzz`, `\1`, `\r`, "#", "# c", "$", "$HAPSNAP_NONE", "${HAPSNAP_NONE}", "${HAPSNAP_NONE-d e}", "${", "${HAPSNAP_NONE", "$1", "{", "}", "[", "]", "é", "\x7f",
}

func randomLine(random *rand.Rand) string {
	var b strings.Builder
	for range 1 + random.IntN(8) {
		b.WriteString(pieces[random.IntN(len(pieces))])
	}
	return b.String()
}

// HAProxy's .warning prints the word that follows it, and the next word if there is one. So it shows how
// HAProxy reads a line.
func TestWordsAreThoseOfHAProxy(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		// If a line is refused, newer versions of HAProxy print no warnings for the good ones.
		var good, faulty []string
		refused := 0
		for len(faulty) < mostFaults && refused < mostFaults {
			line := ".warning " + randomLine(random)
			switch want := expected(line); {
			case want == "":
				faulty = append(faulty, line)
			default:
				good = append(good, line)
				if !strings.HasPrefix(want, "'") {
					refused++
				}
			}
		}
		compareWords(t, good)
		compareWords(t, faulty)
	}
}

func compareWords(t *testing.T, lines []string) {
	t.Helper()
	// If its buffer is too small, HAProxy reads a line again, and then takes the default of a variable for a
	// fault. A long line makes the buffer large enough.
	config := ".warning " + strings.Repeat("x", 500) + "\n" + strings.Join(lines, "\n") + "\n"
	got := haproxySays(t, config)
	for i, line := range lines {
		want, text := expected(line), got[i+2]
		switch {
		case text == "":
			t.Errorf("%q: HAProxy says nothing, want %s", line, cmp.Or(want, "a fault"))
		case want == "" || want == unknown:
			taken := strings.HasPrefix(text, "'") || strings.HasPrefix(text, "Unexpected")
			if taken != (want == unknown) {
				t.Errorf("%q: HAProxy says %s, want %s", line, text, cmp.Or(want, "a fault"))
			}
		case text != want:
			t.Errorf("%q: HAProxy says %s, want %s", line, text, want)
		}
	}
}

// unknown is the expected text for a good line with a variable.
const unknown = "anything but a fault"

// expected is what HAProxy prints for a .warning, "" for a fault of the line.
func expected(line string) string {
	words, err := haproxycfg.Words([]byte(line))
	if err != nil {
		return ""
	}
	texts := []string{"", "", ""}
	for i, w := range words[:min(3, len(words))] {
		if texts[i] = w.Text; w.Variable {
			return unknown
		}
	}
	if texts[2] != "" {
		return fmt.Sprintf("Unexpected argument '%s' for '.warning'. Use quotes if the message should contain spaces.", texts[2])
	}
	return "'" + texts[1] + "'."
}

// An unknown word shows in which section HAProxy is.
func TestSectionsAreThoseOfHAProxy(t *testing.T) {
	t.Parallel()
	heads := []string{
		"backend b%d", "   backend b%d", "\tfrontend f%d", `"backend" b%d`, `'listen' l%d`, `back\x65nd b%d`, "defaults", "defaults d%d", "global", "global # c",
		"userlist u%d", "resolvers r%d", "backend b%d # listen x", "backend\tb%d\r", "backend \"b%d\"", "peers p%d", "cache c%d", "# backend b%d", `\backend b%d`,
		"http-errors e%d", "mailers m%d", "ring i%d", "fcgi-app a%d", "backend b%d from d", "'backend b%d'", "\v backend b%d", `"back"end b%d`,
	}
	in := regexp.MustCompile(`unknown (?:keyword|statement) '(zzz\d+)' in '([a-z-]+)'`)
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 25 {
		var config strings.Builder
		config.WriteString("defaults d\n mode http\n")
		for i := range mostFaults {
			head := strings.ReplaceAll(heads[random.IntN(len(heads))], "%d", strconv.Itoa(round*100+i))
			fmt.Fprintf(&config, "%s\nzzz%d\n", head, i)
		}
		says := haproxySays(t, config.String())
		asked := 0
		for section := range haproxycfg.Sections([]byte(config.String())) {
			for _, line := range section.Lines {
				match := in.FindStringSubmatch(says[line.Number])
				if match == nil {
					continue // a section that HAProxy refused at its head, or one that words it in another way
				}
				asked++
				if in := strings.Replace(match[2], "users", "userlist", 1); in != section.Keyword || match[1] != line.First() {
					t.Errorf("line %d, %q: HAProxy has it in %s, want %s\n%s", line.Number, line.Text, match[2], section.Keyword, config.String())
				}
			}
		}
		if asked == 0 {
			t.Errorf("HAProxy named no section:\n%v\n%s", says, config.String())
		}
	}
}
