"""Names that a stratum may have."""

import pytest

from rm_memorization.errors import UserError
from rm_memorization.strata import check_strata


@pytest.mark.parametrize("strata", [[], ["a"], ["a", "a - c", "b"], ["All"]])
def test_names_of_their_own_pass(strata):
    check_strata(strata, "pairs.csv")


@pytest.mark.parametrize(("strata", "taken"), [(["a", "all"], "'all'"), (["a", "a - b", "b"], "'a - b'")])
def test_a_name_that_is_taken_is_refused_where_it_was_read(strata, taken):
    with pytest.raises(UserError, match=f"pairs.csv: column 'stratum': the name {taken}"):
        check_strata(strata, "pairs.csv")
