"""What the pretrained models read, and what is known of it beforehand."""

from pathlib import Path


def paragraph() -> str:
    """An English paragraph of 69 tokens, which ships with the package."""
    lines = Path(__file__).with_name("paragraph.txt").read_text(encoding="utf-8")
    return " ".join(lines.split())


# Clusters of its tokens, in the last layer of MiniLM, under self-attention: beta, and
# the number at each of the times. Fourth-order Runge-Kutta in numpy, step 0.1.
WORD_TIMES = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
WORD_COUNTS = {
    11.0: (45, 31, 17, 4, 1, 1, 1),
    12.0: (45, 34, 24, 14, 3, 1, 1),
    13.0: (45, 34, 29, 21, 9, 3, 1),
    16.0: (47, 42, 36, 33, 24, 21, 15),
}
# One of the clusters at beta = 13, t = 50.
KITCHEN = {"kitchen", "baker", "kn", "##ead", "bread", "dough", "oven", "##aves"}

# The variable domain of the heavy chain of an antibody against SARS-CoV-2.
ANTIBODY = (
    "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTST"
    "AYMELSSLRSEDTAVYYCAAPYCSSISCNDGFDIWGQGTMVTVS"
)

# English sentences as phonemes, 94 tokens each; A, I, O, W stand for the diphthongs of
# day, my, go and now.
PHONEMES = (
    "ðə ɹˈAn hæd stˈɑpt ˌOvəɹ ðə hˈɑɹbəɹ, ænd ðə fˈɪʃəɹmən wɜɹ mˈɛndɪŋ ðɛɹ nˈɛts "
    "bəsˈId ðə bˈOts.",
    "ɪn ðə kˈɪʧən ðə bˈAkəɹ nˈidɪd bɹˈɛd dˈO, sˈɔltɪd ɪt, ænd lˈɪt ðə ˈʌvən fɔɹ ðə "
    "mˈɔɹnɪŋ lˈOvz.",
    "fˈɑɹ əbˈʌv ðɛm ə sˈætəlˌIt mˈɛʒəɹd ðə tˈɛmpɹəʧəɹ ʌv ə sˈi ænd sˈɛnt ɪts nˈʌmbəɹz "
    "bˈæk nˈɔɹθ.",
    "ə ʧˈIld ˈæskt wˌI ðə mˈun fˈɑlOd ðə tɹˈAn, ænd hɜɹ mˈʌðəɹ sˈɛd ɪt wʌz ˈOnli vˈɛɹi "
    "fˈɑɹ əwˈA.",
    "wˌɛn ðə wˈɪnd tˈɜɹnd, ðə mˈɪlz bəɡˈæn tə ɡɹˈInd ðə lˈæst wˈit ʌv ðə jˈɪɹ, slˈOli "
    "ænd lˈWdli.",
)
