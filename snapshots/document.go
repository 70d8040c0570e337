package snapshots

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

// The errors of a YAML text that is read as one document.
var (
	errSecondDocument = errors.New("it holds more than one YAML document, and only the first would be read")
	errAlias          = errors.New("it holds a YAML alias, by which a short text can stand for a very long one")
)

// maxValues is how many values a YAML text may have. A value takes about 250 bytes of
// memory while the text is read, however short it is in the text. The manifest of 40,000
// objects, which is nearly as large as one may be, has 560,000.
const maxValues = 1_000_000

// DecodeYAML reads a text of at most the given size that holds one YAML document, and
// refuses fields that the value does not have. The YAML parser reads the first document
// and ignores what follows; somebody who added a second one meant something by it.
func DecodeYAML(data []byte, most int, into any) error {
	if len(data) > most {
		return fmt.Errorf("it has %d bytes, and may have %d", len(data), most)
	}
	if values(data) > maxValues {
		return fmt.Errorf("it holds more than %d values", maxValues)
	}
	if !plain(data) {
		if err := checkDocument(data); err != nil {
			return err
		}
	}
	return yaml.UnmarshalStrict(data, into)
}

// values returns a number that is not lower than that of the values in a YAML text: each
// of them, but the first, comes after one of these.
func values(data []byte) int {
	n := 1
	for i, c := range data {
		switch c {
		case '\n', '\r', ',', '[', '{', ':':
			n++
		case '-', '?':
			if i+1 < len(data) && (data[i+1] == ' ' || data[i+1] == '\t') {
				n++
			}
		}
	}
	return n
}

// notPlain matches what can begin another document, or name an anchor, and line breaks
// that are none of ours.
var notPlain = regexp.MustCompile("(?m)^(?:---|\\.\\.\\.)|(?:^|[\\s\\[{,:-])&\\S|\r|\u0085|\u2028|\u2029")

// plain reports whether a text is surely one document without aliases: a mapping that
// begins in the first column ends with the text, or where another document begins.
// Manifests of large clusters are, and are spared another parser.
func plain(data []byte) bool {
	return len(data) > 0 && (data[0] >= 'a' && data[0] <= 'z' || data[0] >= 'A' && data[0] <= 'Z') && !notPlain.Match(data)
}

// checkDocument returns an error unless a text is one document without aliases. An empty
// document at the end is none.
func checkDocument(data []byte) error {
	d := kyaml.NewDecoder(bytes.NewReader(data))
	var first kyaml.Node
	if err := d.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		var more kyaml.Node
		err := d.Decode(&more)
		switch {
		case errors.Is(err, io.EOF):
			return checkAliases(&first)
		case err != nil, !empty(&more):
			return errSecondDocument
		}
	}
}

// empty reports whether a document says nothing.
func empty(document *kyaml.Node) bool {
	return len(document.Content) == 0 || len(document.Content) == 1 && document.Content[0].Kind == kyaml.ScalarNode && document.Content[0].Value == ""
}

func checkAliases(n *kyaml.Node) error {
	if n.Kind == kyaml.AliasNode {
		return errAlias
	}
	for _, below := range n.Content {
		if err := checkAliases(below); err != nil {
			return err
		}
	}
	return nil
}
