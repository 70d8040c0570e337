package validate

import (
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
)

// The Dataplane API keeps the lines that Bind makes of users and values.
func TestRoundTripKeepsSecrets(t *testing.T) {
	t.Parallel()
	auth, keys := snapshots.SecretName{Namespace: "shop", Name: "auth"}, snapshots.SecretName{Namespace: "shop", Name: "keys"}
	config := "userlist u\n    #hapsnap users shop/auth\n"
	live := bind.Live{
		Users: map[snapshots.SecretName][]htpasswd.User{auth: {
			{Name: "a", Hash: "$2y$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2"},
			{Name: "b@shop.example", Hash: "$5$rounds=1000$abcdefgh$ue35C0ITbth1b5zVUjrjm2mMmsmMKiodEeH2UV/Hq10"},
			{Name: "c+d=e~f!g;{h}(i),%j", Hash: "$6$abcdefgh$yIZAF3gQPvtKZO/9qOJKffAKKbtS3ef3qmwyugk4uWVjX8YZf/GV3A8SkFxEPY0T56CcilGrHKLffBsp6dLMG."},
			{Name: "groups", Hash: "$y$j9T$abcdefghijklmnop$0Hi8KsZH/hAMRN9Bam6ce3nmi5QAIz3R/KeaXG/c7p9"},
			{Name: "password", Hash: "$1$abcdefgh$y6iHhJNbuC0xpbk0w9pm80"},
			{Name: "user", Hash: "abhfCpXqd4GrI"},
		}},
		Values: map[bind.SecretKey]string{},
	}
	for key, value := range map[string]string{
		"plain": "s3cret", "base64": "YWJj+ZGVm/Zw==", "spaces": "a  b   c ", "quotes": `it's "so" 'a' ''`, "signs": `#1 $HOME ${HOME} \n \\ {x} (y) , ; | &`, "letters": "äöü",
	} {
		live.Values[bind.SecretKey{Secret: keys, Key: key}] = value
		config += "backend " + key + "\n    cookie x dynamic indirect nocache insert\n    dynamic-cookie-key hapsnap:secret/shop/keys/" + key +
			"\n    http-request set-header x hapsnap:secret/shop/keys/" + key + " if { req.hdr(y) -m str hapsnap:secret/shop/keys/" + key + " }\n"
	}
	s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}}.Seal(1, snapshots.ID{})
	bound, err := bind.Bind(s, bind.Inputs{Live: live, Layout: LayoutIn("/x")})
	if err != nil || len(bound.Missing) > 0 {
		t.Fatalf("%v, missing %v", err, bound.Missing)
	}
	faults, err := (&roundTrips{}).check(bound.Config)
	if err != nil || len(faults) > 0 {
		t.Errorf("%v, faults %+v in\n%s", err, faults, bound.Config)
	}
}
